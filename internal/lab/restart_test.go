//go:build linux

package lab

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/lab/agent"
	"github.com/holdfast-go/holdfast/internal/netns"
)

// A pod comes back with another address, once after it has left and once after it was killed; and
// its old address is another pod's.
func TestPodComesBack(t *testing.T) {
	w := begin(t, true)
	var hosts []*netns.Host
	for i := range 3 {
		hosts = append(hosts, w.host(t, fmt.Sprint("10.0.0.", 81+i)))
	}
	nodes := w.together(t, hosts, word)
	nodes[0].leave()
	nodes[0] = w.start(t, w.host(t, "10.0.0.84"), nil)
	settle(t, nodes)
	nodes[1].kill()
	nodes[1] = w.start(t, hosts[0], nil)
	settle(t, nodes)
	before := all(nodes, agent.Command{Op: "state"})
	_, after := work(t, nodes, time.Second)
	inMemory(t, nodes, before, after)
	leave(nodes)
}

// Each process is replaced by one at another address, while the others lock.
func TestRollingRestart(t *testing.T) {
	w := begin(t, true)
	var hosts []*netns.Host
	for i := range 3 {
		hosts = append(hosts, w.host(t, fmt.Sprint("10.0.0.", 91+i)))
	}
	nodes := w.together(t, hosts, word)
	for i := range nodes {
		fresh := w.start(t, w.host(t, fmt.Sprint("10.0.0.", 94+i)), nil)
		old := nodes[i]
		nodes[i] = fresh
		rest := append(append([]*node{}, nodes[:i]...), nodes[i+1:]...)
		var pending []func() agent.Answer
		for _, n := range rest {
			pending = append(pending, n.ask(agent.Command{Op: "work", Keys: keys, Limit: 6 * time.Second}))
		}
		old.leave()
		var answers []agent.Answer
		for _, answer := range pending {
			answers = append(answers, answer())
		}
		if longest := judge(t, rest, answers); longest > 3*time.Second {
			t.Errorf("a lock was waited for for %v", longest)
		} else {
			t.Logf("a lock was waited for for at most %v", longest)
		}
	}
	settle(t, nodes)
	leave(nodes)
}
