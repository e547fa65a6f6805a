package gossip

import (
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/holdfast-go/holdfast/ring"
)

// A member that is gone is out of the membership at once, whatever else changes; the rest waits as
// ever.
func TestDebounce_DropsWhatIsGone(t *testing.T) {
	begin := time.Unix(1, 0)
	d := newDebounce(2*time.Second, 10*time.Second, begin)
	gone := func(name string) bool { return name == "b" }
	if _, ok := d.drop(begin, gone); ok {
		t.Error("nothing has settled, and something is dropped")
	}
	d.release(begin)
	d.observe(begin, []string{"a", "b", "c"})
	now := begin.Add(2 * time.Second)
	if got, ok := d.settle(now); !ok || len(got) != 3 {
		t.Fatal(got, ok)
	}
	d.observe(now, []string{"a", "c"})
	if got, ok := d.drop(now, gone); !ok || !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("the membership without b is %v, %v", got, ok)
	}
	if at, ok := d.due(); ok {
		t.Errorf("nothing else has changed, and something is due at %v", at)
	}
	if _, ok := d.drop(now, gone); ok {
		t.Error("b is dropped twice")
	}
	d.observe(now, []string{"a", "c", "d"})
	if got, ok := d.drop(now, func(name string) bool { return name == "c" }); !ok || !slices.Equal(got, []string{"a"}) {
		t.Errorf("the membership without c is %v, %v", got, ok)
	}
	if at, ok := d.due(); !ok || !at.Equal(now.Add(2*time.Second)) {
		t.Errorf("the new member is due at %v, %v", at, ok)
	}
}

// A process that was killed and has started again under its name takes the dead one's place at
// once: no other member has to give anything away.
func TestDebounce_AProcessThatStartsAgainTakesItsPlace(t *testing.T) {
	begin := time.Unix(1, 0)
	d := newDebounce(2*time.Second, 10*time.Second, begin)
	d.release(begin)
	d.observe(begin, []string{"shop-0/A", "shop-1/B", "shop-2/C"})
	now := begin.Add(2 * time.Second)
	if _, ok := d.settle(now); !ok {
		t.Fatal("nothing has settled")
	}
	d.observe(now, []string{"shop-0/A", "shop-1/B", "shop-1/Z", "shop-2/C", "shop-3/D"})
	got, ok := d.drop(now, func(name string) bool { return name == "shop-1/B" })
	if want := []string{"shop-0/A", "shop-1/Z", "shop-2/C"}; !ok || !slices.Equal(got, want) {
		t.Errorf("the membership is %v, %v, want %v", got, ok, want)
	}
	if at, ok := d.due(); !ok || !at.Equal(now.Add(2*time.Second)) {
		t.Errorf("the new member is due at %v, %v", at, ok)
	}
}

// A process that is killed and starts again at its address is placed at once, though gossip has not
// missed the former one yet. At another address it waits for Debounce, as both may be there.
func TestStep_AProcessStartsAgainAtItsAddress(t *testing.T) {
	for peer, want := range map[string][]string{"10.0.0.2:1": {"shop-0/A", "shop-1/Z"}, "10.0.0.9:1": {"shop-0/A", "shop-1/B"}} {
		o := options("x")
		o.Name = "shop-0/A"
		r, err := newRing(o)
		if err != nil {
			t.Fatal(err)
		}
		there := func(name, peer string) {
			r.roster.nodes[name] = ring.Node{Name: name, Peer: peer, Gossip: peer, State: ring.Active}
		}
		there("shop-0/A", "10.0.0.1:1")
		there("shop-1/B", "10.0.0.2:1")
		begin := time.Now()
		d := newDebounce(o.Debounce, o.MaxDebounce, begin)
		r.searched.Store(true)
		r.step(d, begin)
		now := begin.Add(o.Debounce)
		r.step(d, now)
		there("shop-1/Z", peer)
		r.step(d, now)
		if got := r.View().Placement().Members(); !slices.Equal(got, want) {
			t.Errorf("a process at %s has started again: placed are %v, want %v", peer, got, want)
		}
		r.step(d, now.Add(o.Debounce))
		if got := r.View().Placement().Members(); len(got) != 2 && peer == "10.0.0.2:1" {
			t.Errorf("later %v are placed", got)
		}
		r.cancel()
	}
}

// A member that leaves and is there again before the ring has looked has lost its place. So has one
// that is there though it is said to be gone. The first one is placed as a new one is, the other
// one when it is not gone any more.
func TestStep_WhatIsGoneAndThere(t *testing.T) {
	o := options("a")
	gone := false
	o.Gone = func(name string) bool { return gone && name == "b" }
	r, err := newRing(o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.cancel()
	b := ring.Node{Name: "b", State: ring.Active}
	r.roster.nodes["a"], r.roster.nodes["b"] = ring.Node{Name: "a", State: ring.Active}, b
	now := time.Now()
	d := newDebounce(o.Debounce, o.MaxDebounce, now)
	r.searched.Store(true)
	placed := func(after time.Duration, want ...string) {
		t.Helper()
		now = now.Add(after)
		r.step(d, now)
		if got := r.View().Placement().Members(); !slices.Equal(got, want) {
			t.Fatalf("placed are %v, want %v", got, want)
		}
	}
	due := func() {
		t.Helper()
		if at, ok := d.due(); !ok || !at.Equal(now.Add(o.Debounce)) {
			t.Fatalf("due in %v, %v", at.Sub(now), ok)
		}
	}
	placed(0)
	placed(o.Debounce, "a", "b")
	r.roster.NotifyLeave(&memberlist.Node{Name: "b", State: memberlist.StateLeft})
	r.roster.nodes["b"] = b
	placed(time.Second, "a")
	due()
	placed(o.Debounce, "a", "b")
	gone = true
	placed(time.Second, "a")
	v := r.View()
	for range 3 {
		due()
		placed(o.Debounce, "a")
	}
	if r.View() != v {
		t.Error("a View for nothing")
	}
	gone = false
	placed(o.Debounce, "a", "b")
}

// A node that another one asks for a key has been placed by it, and places the nodes that it sees
// at once: as soon as it has looked for others. Later changes wait as ever.
func TestStep_Settle(t *testing.T) {
	r, err := newRing(options("b"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.cancel()
	there := func(name string) { r.roster.nodes[name] = ring.Node{Name: name, State: ring.Active} }
	there("a")
	there("b")
	now := time.Now()
	d := newDebounce(r.opts.Debounce, r.opts.MaxDebounce, now)
	placed := func(want ...string) {
		t.Helper()
		r.step(d, now)
		if got := r.View().Placement().Members(); !slices.Equal(got, want) {
			t.Fatalf("placed are %v, want %v", got, want)
		}
	}
	placed()
	r.Settle()
	placed()
	r.searched.Store(true)
	placed("a", "b")
	there("c")
	r.Settle()
	placed("a", "b")
	now = now.Add(r.opts.Debounce)
	placed("a", "b", "c")
}
