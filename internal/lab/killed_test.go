//go:build linux

package lab

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/lab/agent"
	"github.com/holdfast-go/holdfast/internal/netns"
)

// A process that was killed is dead at once for the others of its network namespace. Those of other
// namespaces do not see it end: for them it is dead when the promises to it have passed.
func TestAKilledProcess(t *testing.T) {
	const takeover = 3 * time.Second // the default
	w := begin(t, false)
	pod := w.host(t, "10.0.0.111")
	for name, x := range map[string]struct {
		hosts    []*netns.Host
		from, to time.Duration
	}{
		"of one pod":     {[]*netns.Host{pod, pod, pod}, 0, takeover / 2},
		"of its own pod": {[]*netns.Host{w.host(t, "10.0.0.112"), w.host(t, "10.0.0.113"), w.host(t, "10.0.0.114")}, takeover / 3, 2 * takeover},
	} {
		t.Run(name, func(t *testing.T) {
			w.flush(t)
			nodes := w.together(t, x.hosts, word)
			state := func(n *node) []coord.NodeInfo { return n.ask(agent.Command{Op: "state"})().Nodes }
			self := func(i coord.NodeInfo) bool { return i.Self }
			victim, others := nodes[0], nodes[1:]
			await.Until(t, "it is guarded", func() bool {
				return slices.ContainsFunc(state(victim), func(i coord.NodeInfo) bool { return i.Guardian })
			})
			all := state(victim)
			id := all[slices.IndexFunc(all, self)].ID
			begun := time.Now()
			victim.kill()
			await.Until(t, "the others know that it is dead", func() bool {
				return !slices.ContainsFunc(others, func(n *node) bool {
					return slices.ContainsFunc(state(n), func(i coord.NodeInfo) bool { return i.ID == id && i.State != "dead" })
				})
			})
			if d := time.Since(begun); d < x.from || d > x.to {
				t.Errorf("they know it after %v, and not after %v to %v", d, x.from, x.to)
			} else {
				t.Logf("they know it after %v", d)
			}
			leave(others)
		})
	}
}
