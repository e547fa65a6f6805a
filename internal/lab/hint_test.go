//go:build linux

package lab

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/lab/agent"
	"github.com/holdfast-go/holdfast/internal/netns"
	"github.com/holdfast-go/holdfast/internal/repo"
	"github.com/holdfast-go/holdfast/internal/snippets"
)

// Two hosts lock the same keys by turns at a store without messages, as no node owns a partition.
// The one that waits is told by the other one, over the stream between them, that its turn has
// come: it asks again after half a minute otherwise. The store is a file, which the hosts share as
// they are one machine's.
func TestHintsBetweenHosts(t *testing.T) {
	w := begin(t, true)
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("testdata", "file.go"))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(workDir, "file")
	if err := snippets.Build(t.Context(), root, string(text), program); err != nil {
		t.Fatal(err)
	}
	arbiter := filepath.Join(t.TempDir(), "arbiter.db")
	var nodes []*node
	for _, h := range []*netns.Host{w.host(t, "10.0.0.31"), w.host(t, "10.0.0.32")} {
		nodes = append(nodes, w.launch(t, h, program, arbiter))
	}
	await.Within(t, time.Minute, "each node has a stream to the other", func() bool {
		linked := 0
		for _, a := range all(nodes, agent.Command{Op: "state"}) {
			for _, o := range a.Nodes {
				if !o.Self && o.Linked {
					linked++
				}
			}
		}
		return linked == len(nodes)
	})
	answers := all(nodes, agent.Command{Op: "work", Keys: keys[:3], Limit: 3 * time.Second})
	if longest := judge(t, nodes, answers); longest > 15*time.Second {
		t.Errorf("a lock was waited for for %v", longest)
	} else {
		t.Logf("a lock was waited for for at most %v", longest)
	}
	turns := 0
	for _, key := range keys[:3] {
		var order []agent.Hold
		for i, a := range answers {
			for _, h := range a.Holds {
				if h.Local = i == 0; h.Key == key {
					order = append(order, h)
				}
			}
		}
		slices.SortFunc(order, func(a, b agent.Hold) int { return int(a.From - b.From) })
		for i := 1; i < len(order); i++ {
			if order[i].Local != order[i-1].Local {
				turns++
			}
		}
	}
	t.Logf("%d turns from one host to the other", turns)
	if turns < 20 {
		t.Errorf("the hosts took %d turns", turns)
	}
	for i, a := range answers {
		if a.Owned > 0 || a.Paths["arbiter"] == 0 || a.Paths["forwarded"] > 0 {
			t.Errorf("%s owns %d partitions, and got locks so: %v", nodes[i].name, a.Owned, a.Paths)
		}
	}
	leave(nodes)
}
