package coord_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// observer starts a process that only observes.
func observer(t *testing.T, a fallback.Arbiter) *coord.Coordinator {
	t.Helper()
	return join(t, a, &coord.Options{Name: "op", Observe: true})
}

// With the default options, an observer finds a namespace with other settings, and sees and does as
// much as a node could.
func TestObserve_SeesAllAndIsNoMember(t *testing.T) {
	t.Parallel()
	a := fallback.NewMemory()
	var nodes []*coord.Coordinator
	for _, name := range []string{"anna", "berta"} {
		o := unhurried()
		o.Name = name
		nodes = append(nodes, join(t, a, o))
	}
	settled(t, 61, nodes...)
	anna, berta := nodes[0], nodes[1]
	op := observer(t, a)
	if n := op.Nodes(); len(n) != 2 || n[0].Name != "anna" || !n[0].Linked || n[1].Name != "berta" || !n[1].Linked || n[0].State != "listed" {
		t.Fatalf("%+v", n)
	}
	key := keyOwnedBy(t, anna)
	l, err := berta.Lock(coord.WithLabel(t.Context(), "checkout"), key)
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, t.Context(), anna, key, 2)
	info, err := op.Inspect(t.Context(), key)
	if err != nil || info.Owner == nil || info.Owner.Name != "anna" || info.Holder == nil || info.Holder.Name != "berta" || info.Holder.Fence != l.Fence() ||
		info.Holder.Label != "checkout" || len(info.Waiters) != 1 || info.Waiters[0].Callers != 2 || len(info.Unanswered) > 0 {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	top, err := op.Top(t.Context(), 3, coord.LongestHeld)
	if err != nil || len(top.Keys) != 1 || top.Keys[0].Waiters != 2 || len(top.Unanswered) > 0 {
		t.Errorf("Top: %+v, %v", top, err)
	}
	held, err := op.Held(t.Context(), "berta")
	if err != nil || len(held.Keys) != 1 || held.Keys[0].Label != "checkout" {
		t.Errorf("Held: %+v, %v", held, err)
	}
	r, err := op.Report(t.Context(), "anna")
	if err != nil || r.Name != "anna" || r.Owned == 0 || r.State != "active" || len(r.Nodes) != 2 || r.Waiting != 2 || r.Up <= 0 {
		t.Errorf("Report: %+v, %v", r, err)
	}
	parts, err := op.Partitions(t.Context())
	owned := make(map[string]int)
	for _, p := range parts {
		if p.Owner != nil {
			owned[p.Owner.Name]++
		}
	}
	if err != nil || len(parts) != 61 || owned["anna"] != anna.Stats().Owned || owned["berta"] != berta.Stats().Owned {
		t.Errorf("Partitions: %v, %v", owned, err)
	}
	all, err := op.Processes(t.Context())
	if err != nil || len(all) != 2 || all[0].Name != "anna" || all[0].Session != anna.Stats().Session {
		t.Errorf("Processes: %+v, %v", all, err)
	}
	for _, c := range nodes { // an observer is no member
		if len(c.Nodes()) != 2 {
			t.Errorf("%+v", c.Nodes())
		}
	}
	if _, err := op.TryLock(t.Context(), key); !errors.Is(err, coord.ErrObserver) {
		t.Errorf("TryLock: %v", err)
	}
	if _, err := op.Lock(t.Context(), "another"); !errors.Is(err, coord.ErrObserver) {
		t.Errorf("Lock: %v", err)
	}
	if err := op.Settled(t.Context(), 0); !errors.Is(err, coord.ErrObserver) {
		t.Errorf("Settled: %v", err)
	}
	if err := op.Drain(t.Context()); !errors.Is(err, coord.ErrObserver) {
		t.Errorf("Drain: %v", err)
	}
	if err := op.Break(t.Context(), key, l.Fence(), "it is stuck"); err != nil {
		t.Error(err)
	}
	broken(t, l, l.Unlock(), "it is stuck (op)")
	if err := op.DrainNode(t.Context(), "nobody", ""); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("DrainNode of no node: %v", err)
	}
	if err := op.DrainNode(t.Context(), "anna", "maintenance"); err != nil {
		t.Error(err)
	}
	await.Until(t, "anna owns nothing, as the observer sees", func() bool {
		r, err := op.Report(t.Context(), "anna")
		return err == nil && r.Owned == 0 && r.State == "leaving" && berta.Stats().Owned == 61
	})
	unlock(t, lock(t, anna, key)) // it is a client
}

// A mistyped namespace is an error, and is not made.
func TestObserve_ANamespaceThatIsNotThere(t *testing.T) {
	a := fallback.NewMemory()
	for range 2 {
		_, err := coord.New(t.Context(), a, &coord.Options{Namespace: "shpo", Observe: true})
		if !errors.Is(err, fallback.ErrNoNamespace) || !strings.Contains(err.Error(), "shpo") {
			t.Error(err)
		}
	}
}

// Without a cluster an observer asks the arbiter.
func TestObserve_WithoutNodes(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		anna := start(t, a, &coord.Options{Name: "anna"})
		l := lock(t, anna, "k")
		defer unlock(t, l)
		op := start(t, a, &coord.Options{Name: "op", Observe: true})
		info, err := op.Inspect(t.Context(), "k")
		if err != nil || info.Holder == nil || info.Holder.Name != "anna" || info.Holder.Fence != l.Fence() {
			t.Errorf("%+v, %v", info, err)
		}
		if err := op.Break(t.Context(), "k", l.Fence(), "x"); !errors.Is(err, coord.ErrNotBroken) {
			t.Error(err)
		}
		if all, err := op.Processes(t.Context()); err != nil || len(all) != 1 || all[0].PID == 0 {
			t.Errorf("%+v, %v", all, err)
		}
		time.Sleep(time.Hour) // it goes on to observe
		if info, err := op.Inspect(t.Context(), "k"); err != nil || info.Holder == nil {
			t.Errorf("%+v, %v", info, err)
		}
	})
}

// Calls of an observer that begin Grace begin one that is long enough for all.
func TestObserve_TakesOverALongerGrace(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		start(t, a, &coord.Options{Name: "anna"})
		op := start(t, a, &coord.Options{Name: "op", Observe: true})
		start(t, a, &coord.Options{Name: "berta", SessionTTL: 20 * time.Second})
		a.Restore(a.Snapshot())
		beginsGraceOf(t, op, 24*time.Second)
	})
}

// beginsGraceOf has an observer begin Grace at a server that has just taken over, and looks how
// long that is.
func beginsGraceOf(t *testing.T, op *coord.Coordinator, want time.Duration) {
	t.Helper()
	if _, err := op.Inspect(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	parts, err := op.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	longest := time.Duration(0)
	for _, p := range parts {
		longest = max(longest, p.Grace)
	}
	if longest != want {
		t.Errorf("the Grace that an observer's call has begun is %v, want %v", longest, want)
	}
}

// A node that is drained hands its partitions over while it lives (rule 4).
func TestDrain_ANodeStaysAClient(t *testing.T) {
	takes.Seconds(t)
	nodes := threeNodes(t)
	anna, berta, clara := nodes[0], nodes[1], nodes[2]
	key := keyOwnedBy(t, anna)
	l := lock(t, anna, key) // stays in force
	other := keyOwnedBy(t, anna)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := anna.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	if s := anna.Stats(); s.Owned != 0 || s.Kept != 0 {
		t.Errorf("%+v", s)
	}
	await.Until(t, "the others own all", func() bool { return berta.Stats().Owned+clara.Stats().Owned == 61 })
	if l.Context().Err() != nil {
		t.Errorf("a lock was lost: %v", context.Cause(l.Context()))
	}
	if _, err := berta.TryLock(t.Context(), key); !errors.Is(err, coord.ErrLocked) {
		t.Errorf("the key can be locked twice: %v", err)
	}
	unlock(t, l)
	for i := range 200 { // of all partitions
		unlock(t, lock(t, anna, fmt.Sprint("key", i)))
	}
	unlock(t, lock(t, berta, other))
	if n := anna.Stats().Owned; n != 0 {
		t.Errorf("it has taken %d partitions", n)
	}
	if err := anna.Drain(ctx); err != nil { // again
		t.Error(err)
	}
}

// A node that has been drained does not take the partitions that it is placed for: it locks their
// keys by the arbiter.
func TestDrain_ANodeThatIsPlacedStill(t *testing.T) {
	takes.Seconds(t)
	a := fallback.NewMemory()
	o := unhurried()
	o.Name = "berta"
	berta := join(t, a, o)
	settle(t, 61, berta)
	o2 := unhurried()
	o2.Name = "anna"
	anna := join(t, a, o2)
	coord.Drained(anna)
	await.Until(t, "the other one gives some away", func() bool { return berta.Stats().Owned < 61 })
	for i := range 200 { // of all partitions
		unlock(t, lock(t, anna, fmt.Sprint("key", i)))
	}
	await.Until(t, "the other one keeps its own", func() bool { return berta.Stats().Owned < 50 })
	if n := anna.Stats().Owned; n != 0 {
		t.Errorf("it has taken %d partitions", n)
	}
	if err := berta.Close(t.Context()); err != nil { // which offers the others
		t.Error(err)
	}
	for i := range 200 {
		unlock(t, lock(t, anna, fmt.Sprint("key", i)))
	}
	if n := anna.Stats().Owned; n != 0 {
		t.Errorf("it has taken %d partitions that were offered", n)
	}
}

func TestDrain_TheLastNodeKeepsItsPartitions(t *testing.T) {
	t.Parallel()
	a := fallback.NewMemory()
	o := unhurried()
	o.Unbreakable = true
	c := join(t, a, o)
	settle(t, 61, c)
	if err := c.Drain(t.Context()); err == nil || !strings.Contains(err.Error(), "no other node") {
		t.Error(err)
	}
	if n := c.Stats().Owned; n != 61 {
		t.Errorf("it owns %d", n)
	}
	op := observer(t, a)
	if err := op.DrainNode(t.Context(), c.Nodes()[0].ID, ""); err == nil || !strings.Contains(err.Error(), "Unbreakable") {
		t.Error(err)
	}
}

// A key whose owner does not answer is not called free, and a lock that may be there to break is
// not called gone.
func TestInspect_AnOwnerThatDoesNotAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		ns := attach(t, a)
		if _, err := ns.Open(t.Context(), "mute", fallback.Registration{TTL: time.Hour, Info: "name=mute&n=mute/1&h=pluto"}); err != nil {
			t.Fatal(err)
		}
		op := start(t, a, &coord.Options{Name: "op", Observe: true})
		k := must(op.Inspect(t.Context(), "k"))
		if k.Unknown || k.Owner != nil {
			t.Errorf("without an owner: %+v", k)
		}
		r := must(ns.Load(t.Context(), k.Partition))
		if got := must(ns.Acquire(t.Context(), k.Partition, "mute", fallback.Expect{Epoch: r.Epoch})); got.Verdict != fallback.Granted {
			t.Fatal(got)
		}
		k = must(op.Inspect(t.Context(), "k"))
		if !k.Unknown || k.NotServing || k.Holder != nil || k.Owner.Name != "mute" || len(k.Unanswered) != 1 {
			t.Errorf("%+v", k)
		}
		if err := op.Break(t.Context(), "k", 1, "x"); !errors.Is(err, coord.ErrNotBroken) || !strings.Contains(err.Error(), "pluto") {
			t.Error(err)
		}
	})
}

// An arbiter that does not list its sessions has not said that there are none.
func TestObserve_SessionsThatAreNotListed(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		f := &faulty{Arbiter: a}
		anna := start(t, f, &coord.Options{Name: "anna"})
		f.cut("list")
		if all, err := anna.Processes(t.Context()); !errors.Is(err, coord.ErrUnavailable) || !errors.Is(err, errCut) {
			t.Errorf("Processes: %+v, %v", all, err)
		}
		if all, err := anna.Partitions(t.Context()); !errors.Is(err, coord.ErrUnavailable) || !errors.Is(err, errCut) {
			t.Errorf("Partitions: %d, %v", len(all), err)
		}
		f.mend()
		if all, err := anna.Processes(t.Context()); err != nil || len(all) != 1 {
			t.Errorf("Processes: %+v, %v", all, err)
		}
	})
}
