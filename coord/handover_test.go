package coord

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/peer"
)

// A partition is under way until the next owner says that it has it: but not if no node was told,
// and not for long.
func TestHandOver(t *testing.T) {
	next, other := new(link), new(link)
	for _, c := range []struct {
		name   string
		to, by *link // that is told, and that says so
		cancel bool
		waits  []time.Duration // once, and again
	}{
		{"no node is told", nil, nil, false, []time.Duration{0, 0}},
		{"it is taken", next, next, false, []time.Duration{time.Millisecond, time.Millisecond}},
		{"an older node does not say so", next, nil, false, []time.Duration{takenWithin, 0}},
		{"another node says so", next, other, false, []time.Duration{takenWithin, 0}},
		{"the caller has to end", next, nil, true, []time.Duration{time.Millisecond, time.Millisecond}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x, p := new(cluster), new(partition)
				handovers := &x.self.handovers
				for _, want := range c.waits {
					ctx, cancel := context.WithCancel(t.Context())
					begin := time.Now()
					x.handOver(ctx, p, func() {
						handovers.told(p.Number(), c.to)
						time.AfterFunc(time.Millisecond, func() {
							if c.by != nil {
								handovers.taken(p.Number(), c.by)
							}
							if c.cancel {
								cancel()
							}
						})
					})
					if took := time.Since(begin); took != want {
						t.Errorf("it waits for %v, not %v", took, want)
					}
					cancel()
					time.Sleep(time.Second) // virtual: a word that comes late
					if len(handovers.all) > 0 {
						t.Error("it is under way for ever")
					}
				}
				next.down.Store(true)
				defer next.down.Store(false)
				h := handovers.begin(0)
				handovers.told(0, other)
				handovers.end(0, h, true)
				if len(handovers.slow) != 1 || !handovers.slow[other] {
					t.Error("streams that have ended are kept:", handovers.slow)
				}
			})
		})
	}
}

// One of two goroutines that give a partition waits. And a partition may come back, and be given
// again, before the former hand-over has ended.
func TestHandOver_Twice(t *testing.T) {
	x, p, l := new(cluster), new(partition), new(link)
	handovers := &x.self.handovers
	given := func() {
		handovers.told(p.Number(), l)
		handovers.taken(p.Number(), l)
		handovers.taken(p.Number(), l)
	}
	again := 0
	x.handOver(t.Context(), p, func() {
		x.handOver(t.Context(), p, func() { again++ })
		given()
		x.handOver(t.Context(), p, func() {
			again++
			given()
		})
		given()
	})
	if again != 2 || len(handovers.all) > 0 {
		t.Errorf("%d times, and it is under way for ever: %v", again, handovers.all)
	}
}

func TestHandOver_TheNextOwnerSaysSo(t *testing.T) {
	c := enter(t, fallback.NewMemory(), small())
	_, s := guest(t, c, "guest", framesHint)
	h := c.cluster.self.handovers.begin(3)
	c.cluster.self.handovers.told(3, c.cluster.linkTo("guest"))
	if err := s.Send(&peer.Frame{Kind: peer.Moved, Flags: lease.FlagTaken, Partition: 3}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-h.done:
	case <-time.After(20 * time.Second):
		t.Error("it is still under way")
	}
}

// A node that has said that it leaves is given nothing, though its ring is the same: a partition
// that it has given away may come before the news.
func TestAgreed_NotWithANodeThatLeaves(t *testing.T) {
	c := enter(t, fallback.NewMemory(), small())
	_, s := guest(t, c, "guest", framesHint)
	ring := c.cluster.ring.View().Fingerprint()
	if err := s.Send(&peer.Frame{Kind: peer.Ping, Ping: 1, Token: ring}); err != nil {
		t.Fatal(err)
	}
	l := c.cluster.linkTo("guest")
	await.Until(t, "it has the same ring", func() bool { return c.cluster.agreedWith(l, ring) })
	if err := s.Send(&peer.Frame{Kind: peer.Moved, Flags: lease.FlagLeft}); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "it agrees no more", func() bool { return !c.cluster.agreedWith(l, ring) })
}
