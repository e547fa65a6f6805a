package ring

import (
	"slices"
	"testing"
	"time"
)

func aView(t testing.TB) *View {
	v, err := firstView(271)
	if err != nil {
		t.Fatal(err)
	}
	var nodes []Node
	for _, name := range names(8) {
		nodes = append(nodes, Node{Name: name, Session: "s-" + name, State: Active})
	}
	return v.next(nodes, place(t, names(8), 271), time.Now())
}

func TestLookUpsInAViewAllocateNothing(t *testing.T) {
	v := aView(t)
	var ok [4]bool
	n := testing.AllocsPerRun(100, func() {
		_, ok[0] = v.Owner(17)
		_, ok[1] = v.Node("node-5")
		_, ok[2] = v.BySession("s-node-5")
		_, ok[3] = v.Node("x")
		_, _ = v.Nodes(), v.Fingerprint()
	})
	if n != 0 || ok != [4]bool{true, true, true, false} {
		t.Errorf("%v allocations, %v", n, ok)
	}
}

func TestTheFirstViewIsEmpty(t *testing.T) {
	v, err := firstView(7)
	if err != nil {
		t.Fatal(err)
	}
	_, owner := v.Owner(3)
	_, node := v.Node("")
	_, session := v.BySession("")
	if v.Stable() || owner || node || session || !v.Settled().IsZero() || len(v.Nodes()) > 0 || v.Fingerprint() != place(t, nil, 7).Fingerprint() {
		t.Errorf("%+v", v)
	}
}

func TestViewsThatFollow(t *testing.T) {
	v := aView(t)
	nodes := slices.Clone(v.live)
	nodes[2].Session, nodes[3].Session = "new", ""
	nodes = slices.Delete(nodes, 5, 7) // gone, and still placed
	w := v.next(nodes, v.placement, v.settled)

	if !v.Stable() || w.Stable() {
		t.Errorf("stable: %v, %v", v.Stable(), w.Stable())
	}
	if len(w.Nodes()) != 8 || len(w.live) != 6 || w.resettled != v.resettled || w.replaced == v.replaced {
		t.Errorf("%d nodes, %d live", len(w.Nodes()), len(w.live))
	}
	owned := map[string]int{}
	for i := range uint32(271) {
		n, ok := w.Owner(i)
		name, _ := v.placement.Owner(i)
		if !ok || n.Name != name {
			t.Fatalf("partition %d is %v's, not %v's", i, n, name)
		}
		if x, ok := w.Node(name); !ok || x != n {
			t.Errorf("two of %s", name)
		}
		owned[name]++
	}
	for i, n := range w.Nodes() {
		if n.Gone != (i == 5 || i == 6) || owned[n.Name] == 0 {
			t.Errorf("%+v has %d", n, owned[n.Name])
		}
	}
	for session, ok := range map[string]bool{"new": true, "s-node-2": false, "": false, "s-node-3": false, "s-node-6": true} {
		if n, found := w.BySession(session); found != ok {
			t.Errorf("session %q: %+v", session, n)
		}
	}
	if _, ok := w.Owner(271); ok {
		t.Error("somebody owns a partition that does not exist")
	}

	// A node that is gone is forgotten with the placement; a session that two claim is the living
	// one's.
	nodes = slices.Clone(w.live)
	nodes[0].Session = "s-node-6"
	x := w.next(nodes, w.placement, w.settled)
	if n, _ := x.BySession("s-node-6"); n.Name != "node-0" {
		t.Errorf("%+v", n)
	}
	p := place(t, []string{"node-0", "node-1"}, 271)
	y := x.next(nodes, p, time.Now())
	if len(y.Nodes()) != 6 || y.resettled == x.resettled || y.Placement() != p {
		t.Errorf("%d nodes", len(y.Nodes()))
	}
	if _, ok := y.Node("node-6"); ok {
		t.Error("not forgotten")
	}
}

func BenchmarkViewOwner(b *testing.B) {
	v := aView(b)
	var i uint32
	b.ReportAllocs()
	for b.Loop() {
		v.Owner(i % 271)
		i++
	}
}
