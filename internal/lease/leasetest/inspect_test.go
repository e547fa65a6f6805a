package leasetest

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// statusOf returns the node's status of a key.
func statusOf(n *Node, key string) lease.KeyStatus {
	return n.P.StatusOf(key, time.Hour, 1)
}

// An owner, another node and a node without the key tell its status.
func TestStatusOf(t *testing.T) {
	w := after(t, "a b", "a acquire\n owner a\n ping\n a lock k\n a lock k\n a lock k")
	a, b := w.node("a"), w.node("b")
	s := statusOf(a, "k")
	if !s.Locked || s.Kept || s.Fence == 0 || s.Waiting != 2 || len(s.Waits) != 1 || s.Epoch == 0 || s.Hold != (fallback.Identity{}) {
		t.Errorf("the owner's own: %+v", s)
	}
	do(t, w, "b lock k\n deliver")
	if s = statusOf(a, "k"); len(s.Queue) != 1 || s.Other.Node != "" {
		t.Errorf("another node waits: %+v", s)
	}
	if s = statusOf(b, "k"); s.Locked || s.Waiting != 1 || s.Epoch != 0 {
		t.Errorf("the node that waits: %+v", s)
	}
	if s = statusOf(b, "l"); s.Name != "l" || s.Locked || s.Waiting > 0 {
		t.Errorf("a key that is not in use: %+v", s)
	}
	w = after(t, "a b", "a acquire\n owner a\n ping\n b lock k\n deliver\n tick 1s")
	a, b = w.node("a"), w.node("b")
	if s = statusOf(a, "k"); s.Other.Node != "b" || s.Other.Token == 0 || s.Given == 0 || s.Locked {
		t.Errorf("the owner, of another node's: %+v", s)
	}
	if s = statusOf(b, "k"); !s.Locked || s.Hold.Session != "b" || s.Fence == 0 {
		t.Errorf("the holder: %+v", s)
	}
	do(t, w, "b unlock k")
	seen := 0
	b.P.Survey(0, nil, func(g lease.Glance) {
		seen++
		if !g.Kept || g.Locked || g.Turns != 1 {
			t.Errorf("%+v", g)
		}
	})
	if seen != 1 {
		t.Errorf("%d keys", seen)
	}
}

// The owner tells which requests for reading wait behind one for writing, and no others: not the
// one that came before the writer's, nor any once the writer is gone; and no other node does.
func TestBehind(t *testing.T) {
	for _, writer := range []string{"a", "b"} {
		w := after(t, "a b c d", "a acquire\n owner a\n ping\n b lock k:sb\n deliver\n deliver\n c lock k:sc")
		a := w.node("a")
		behind := func() []lease.Request { return a.P.Behind("k", w.now) }
		do(t, w, "deliver\n deliver")
		if all := behind(); len(all) != 0 {
			t.Errorf("no writer waits: %+v", all)
		}
		do(t, w, writer+" lock k\n deliver\n deliver")
		if all := behind(); len(all) != 0 {
			t.Errorf("nobody is behind the writer: %+v", all)
		}
		do(t, w, "d lock k:sd\n deliver")
		first := behind()
		if len(first) != 1 || first[0].Name != fallback.SharedName("k", "d") || first[0].Epoch == 0 || first[0].Order == 0 {
			t.Fatalf("behind %s's: %+v", writer, first)
		}
		if again := behind(); !slices.Equal(again, first) || w.node("b").P.Behind("k", w.now) != nil || a.P.Behind("l", w.now) != nil {
			t.Errorf("the same: %+v", again)
		}
		do(t, w, "d leave k:sd\n deliver\n d lock k:sd\n deliver")
		if again := behind(); len(again) != 1 || again[0].Order <= first[0].Order {
			t.Errorf("it was made again: %+v", again)
		}
		do(t, w, writer+" leave k\n deliver\n deliver")
		if all := behind(); len(all) != 0 {
			t.Errorf("the writer is gone: %+v", all)
		}
	}
	w := after(t, "a b c d", "a acquire\n owner a\n ping\n b lock k\n deliver\n deliver\n c lock k:sc\n deliver\n d lock k\n deliver")
	if all := w.node("a").P.Behind("k", w.now); len(all) != 0 {
		t.Errorf("the reader came before the writer: %+v", all)
	}
	do(t, w, "a lock k:sa")
	if all := w.node("a").P.Behind("k", w.now); len(all) != 1 || all[0].Name != fallback.SharedName("k", "a") {
		t.Errorf("one reader came after it: %+v", all)
	}
	do(t, w, "tick 1h")
	if all := w.node("a").P.Behind("k", w.now); len(all) != 0 {
		t.Errorf("an owner of before: %+v", all)
	}
}

// A holder is told that others wait; a turn that is over is wanted.
func TestWanted(t *testing.T) {
	isOver := func(n *Node, x turn) bool {
		select {
		case <-n.P.Wanted(x.t, x.fence):
			return true
		default:
			return false
		}
	}
	for _, waits := range []string{"a lock k", "b lock k\n deliver"} {
		for _, before := range []bool{true, false} {
			w := after(t, "a b", "a acquire\n owner a\n ping\n a lock k")
			a := w.node("a")
			x := a.turns["k"]
			if before && isOver(a, x) {
				t.Error("wanted before", waits)
			}
			do(t, w, waits)
			for range 2 {
				if !isOver(a, x) {
					t.Error("not wanted after", waits)
				}
			}
			do(t, w, "a unlock k")
			if !isOver(a, x) {
				t.Error("a turn that is over is not wanted")
			}
		}
	}
}

// A turn that is taken away is lost, and the next waiter gets the key; one that is over is not.
func TestBreak(t *testing.T) {
	w := after(t, "a b", "a acquire\n owner a\n ping\n b lock k\n deliver\n a lock k\n deliver")
	a, b := w.node("a"), w.node("b")
	x := b.turns["k"]
	take := func() (ok bool) {
		b.event(func(now time.Time, fx *lease.Effects) { ok = b.P.Break("k", x.fence, lease.TimeOver, "why", now, fx) })
		return ok
	}
	if !take() || stateOf(b, x) != lease.TurnLost || x.t.Lost().Cause != lease.TimeOver || x.t.Lost().Why != "why" {
		t.Error(stateOf(b, x), x.t.Lost())
	}
	if take() {
		t.Error("it is taken twice")
	}
	do(t, w, "deliver")
	if s := statusOf(a, "k"); !s.Locked {
		t.Errorf("the next caller has not got the key: %+v", s)
	}
}
