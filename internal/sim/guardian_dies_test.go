package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/virtual"
)

// Processes of a cluster are killed one after another, one that owns and holds a key last, and one
// is left. A guardian and its ward do not count as dying together: each session has replaced the
// dead guardian when the next process dies, as it sees the streams end. So the key is to be had D
// after its holder's death; up to 1.2 s later if its next owner is one of the dead, which none can
// bury.
// If sessions waited for their next look, D/6 later at most, the holder would be buried by none.
// Where the arbiter is slow the next one dies while a set without the one before is asked for.
func TestAGuardianThatIsKilledIsReplacedAtOnce(t *testing.T) {
	for _, n := range []int{3, 4, 5} {
		for offset := time.Duration(0); offset < dyingTakeover/6; offset += 50 * time.Millisecond {
			for _, slow := range []time.Duration{0, 30 * time.Millisecond} {
				gap := 20*time.Millisecond + offset/4
				t.Run(fmt.Sprintf("%d nodes, %v after the other, at %v, renewals take %v", n, gap, offset, slow), func(t *testing.T) {
					virtual.Test(t, func(t *testing.T) { dyingOneByOne(t, n, offset, gap, slow) })
				})
			}
		}
	}
}

const dyingTakeover = 3 * time.Second

func dyingOneByOne(t *testing.T, n int, offset, gap, slow time.Duration) {
	net := newNetwork(1)
	net.bad = t.Errorf
	memory := fallback.NewMemory()
	o := &coord.Options{Cluster: &coord.Cluster{Takeover: dyingTakeover}}
	last, _, stop := settledAt(t, net, memory, 1, o)
	defer stop()
	var killed []*mortal
	var nodes []*coord.Coordinator
	var hosts []*host
	for i := range n - 1 {
		a := &mortal{Memory: memory, gone: make(chan struct{}), slow: slow}
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
	key := ""
	for i := 0; key == ""; i++ {
		if owner, _ := nodes[n-2].Owner(fmt.Sprint("key", i)); owner.Self {
			key = fmt.Sprint("key", i)
		}
	}
	if _, err := nodes[n-2].Lock(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	for i, h := range hosts {
		if time.Sleep(gap); i == len(hosts)-1 {
			time.Sleep(2 * slow) // two sets are recorded, one after the other
		}
		close(killed[i].gone)
		h.killed()
	}
	isHadWithin(t, last[0], key, dyingTakeover+dyingTakeover/2)
}
