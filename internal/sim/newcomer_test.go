package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/virtual"
)

// A process starts beside others. It has guardians long before its next look at them, D/6 later. So
// if it locks a key and dies a moment after its start, as a process does that crashes again and
// again, the key is to be had D later, and not T.
func TestANewcomerIsGuardedAtOnce(t *testing.T) {
	const takeover = 3 * time.Second
	for _, n := range []int{1, 2, 3, 5} {
		for offset := time.Duration(0); offset < takeover/6; offset += 100 * time.Millisecond {
			t.Run(fmt.Sprint(n, " others, ", offset), func(t *testing.T) {
				virtual.Test(t, func(t *testing.T) {
					net := newNetwork(1)
					net.bad = t.Errorf
					a := &mortal{Memory: fallback.NewMemory(), gone: make(chan struct{})}
					others, _, stop := settledAt(t, net, a.Memory, n, &coord.Options{Cluster: &coord.Cluster{Takeover: takeover}})
					defer stop()
					time.Sleep(time.Minute + offset)
					c, h := startOne(t, net, a, 9, "newcomer", &coord.Options{Cluster: &coord.Cluster{Takeover: takeover}})
					defer func() {
						_ = c.Close(t.Context())
						h.bury()
					}()
					if _, err := c.Lock(t.Context(), "key"); err != nil {
						t.Fatal(err)
					}
					time.Sleep(takeover / 12)
					if g := c.Stats().Guardians; g == 0 {
						t.Errorf("it has no guardians after %v", takeover/12)
					}
					close(a.gone)
					h.die()
					isHadWithin(t, others[0], "key", takeover+takeover/6)
				})
			})
		}
	}
}

// isHadWithin fails the test if a key, of a process that has just died, takes longer to lock.
func isHadWithin(t *testing.T, c *coord.Coordinator, key string, limit time.Duration) {
	t.Helper()
	died := time.Now()
	l, err := c.Lock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(died); took > limit {
		t.Errorf("the key was to be had %v after the death", took)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
}
