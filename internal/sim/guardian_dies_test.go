package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/virtual"
)

// Processes of a cluster are killed one after another, the holder of a key last, and one is left.
// None is the death of two of a session's guardians at once: each session has replaced the dead one
// when the next dies, as it sees the streams end. So the key is to be had D after its holder's
// death; a bit later if its next owner is one of the dead, that none can bury. If they waited for
// their next look, D/6 later at most, the holder would be buried by none.
func TestAGuardianThatIsKilledIsReplacedAtOnce(t *testing.T) {
	const takeover = 3 * time.Second
	for _, n := range []int{3, 4, 5} {
		for offset := time.Duration(0); offset < takeover/6; offset += 50 * time.Millisecond {
			gap := 20*time.Millisecond + offset/4
			t.Run(fmt.Sprintf("%d nodes, %v after the other, at %v", n, gap, offset), func(t *testing.T) {
				virtual.Test(t, func(t *testing.T) {
					net := newNetwork(1)
					net.bad = t.Errorf
					memory := fallback.NewMemory()
					o := &coord.Options{Cluster: &coord.Cluster{Takeover: takeover}}
					last, _, stop := settledAt(t, net, memory, 1, o)
					defer stop()
					var killed []*mortal
					var nodes []*coord.Coordinator
					var hosts []*host
					for i := range n - 1 {
						a := &mortal{Memory: memory, gone: make(chan struct{})}
						c, h := startOne(t, net, a, i+1, fmt.Sprint("killed", i), o)
						killed, nodes, hosts = append(killed, a), append(nodes, c), append(hosts, h)
						defer func() {
							_ = c.Close(t.Context())
							h.bury()
						}()
					}
					if err := last[0].Settled(t.Context(), n); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute + offset)
					if _, err := nodes[n-2].Lock(t.Context(), "key"); err != nil {
						t.Fatal(err)
					}
					for i, h := range hosts {
						time.Sleep(gap)
						close(killed[i].gone)
						h.killed()
					}
					died := time.Now()
					l, err := last[0].Lock(t.Context(), "key")
					if err != nil {
						t.Fatal(err)
					}
					if took := time.Since(died); took > takeover+takeover/4 {
						t.Errorf("the key was to be had %v after its holder's death", took)
					}
					if err := l.Unlock(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}
