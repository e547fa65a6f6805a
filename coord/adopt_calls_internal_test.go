package coord

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// gate is an arbiter on several servers, or on one. Its calls of Restore wait for an answer of the
// test.
type gate struct {
	fallback.Arbiter
	calls chan *gatedCall
	one   bool

	mu      sync.Mutex      // protects the fields below
	claimed map[string]bool // by calls that wait
	twice   int             // claims that another call makes, too
}

type gateSpace struct {
	fallback.Namespace
	g *gate
}

// gatedCall is a call of Restore. The answer is about its first partition, and others are answered.
type gatedCall struct {
	fallback.Claims
	answer chan error
}

func (g *gate) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := g.Arbiter.Attach(ctx, s)
	return &gateSpace{n, g}, err
}

func (n *gateSpace) Spread() bool { return !n.g.one }

func (n *gateSpace) Restore(ctx context.Context, claims []fallback.Claims) []fallback.Restored {
	x := &gatedCall{claims[0], make(chan error)}
	n.g.note(x, true)
	n.g.calls <- x
	var err error
	select {
	case err = <-x.answer:
	case <-ctx.Done():
		err = ctx.Err()
	}
	n.g.note(x, false)
	all := make([]fallback.Restored, len(claims))
	for i, k := range claims {
		all[i].Verdicts = make([]fallback.Verdict, len(k.Holds))
	}
	all[0].Err = err
	return all
}

// note notes that a call begins or ends.
func (g *gate) note(x *gatedCall, begins bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range x.Holds {
		if begins && g.claimed[h.Key] {
			g.twice++
		}
		g.claimed[h.Key] = begins
	}
}

// answer ends the call that has waited for longest, and waits for its effects.
func (g *gate) answer(t *testing.T, err error) {
	t.Helper()
	select {
	case x := <-g.calls:
		x.answer <- err
	default:
		t.Error("no call was made")
	}
	synctest.Wait()
}

// due returns claims of so many holds in a partition.
func due(p *partition, holds int) claims {
	x := claims{p, lease.Claims{Holds: make([]fallback.Claim, holds)}}
	for i := range x.Holds {
		x.Holds[i].Key = fmt.Sprint(p.Number(), " ", i)
	}
	return x
}

// adopts runs f with a function that begins a pass about the due claims, if one may begin, and
// waits until it goes no further.
func adopts(t *testing.T, f func(t *testing.T, c *Coordinator, g *gate, adopt func(due ...claims) bool)) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{Arbiter: fallback.NewMemory(), calls: make(chan *gatedCall, 1000), claimed: make(map[string]bool)}
		c, err := New(t.Context(), g, nil)
		if err != nil {
			t.Fatal(err)
		}
		under := adopting{busy: make(map[*partition]underway)}
		f(t, c, g, func(due ...claims) bool {
			pass, these := under.begin(due, passes)
			if len(these) == 0 {
				return false
			}
			go func() {
				defer under.end(pass, these)
				_ = c.reclaim(t.Context(), these, c.opts.CallTimeout, func(call []claims, answered bool) { under.called(pass, call, answered) })
			}()
			synctest.Wait()
			return true
		})
		if g.twice > 0 {
			t.Errorf("%d holds were claimed by two calls at once", g.twice)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A partition with holds in several calls is in one pass until the last of them has ended.
func TestAdopting_HoldsInSeveralCalls(t *testing.T) {
	adopts(t, func(t *testing.T, c *Coordinator, g *gate, adopt func(...claims) bool) {
		p := &c.parts[0]
		all := due(p, 600)
		adopt(all)
		for _, left := range []int{600 - fallback.MaxClaims, 600 - 2*fallback.MaxClaims} {
			g.answer(t, nil)
			if adopt(claims{p, lease.Claims{Holds: all.Holds[600-left:]}}) {
				t.Errorf("another pass begins while calls claim %d holds", left)
			}
		}
		g.answer(t, nil)
		if !adopt(due(p, 1)) {
			t.Error("no pass begins after the last call")
		}
		g.answer(t, nil)
	})
}

// A pass leaves out the claims of a partition after a failed call. Another pass claims them again
// beside it.
func TestAdopting_WhatAPassLeavesOut(t *testing.T) {
	adopts(t, func(t *testing.T, c *Coordinator, g *gate, adopt func(...claims) bool) {
		a, b := &c.parts[0], &c.parts[1]
		adopt(due(a, 9*fallback.MaxClaims), due(b, 1))
		var waits *gatedCall
		for len(g.calls) > 0 {
			if x := <-g.calls; x.Partition == b.Number() {
				waits = x
			} else {
				x.answer <- errExpired
			}
			synctest.Wait()
		}
		if !adopt(due(a, 1)) {
			t.Error("no pass begins about a partition of which no call is made any more")
		}
		g.answer(t, nil)
		waits.answer <- nil
		synctest.Wait()
	})
}

// A call was answered if it was about any of its partitions: the record of another one may be
// malformed, for ever.
func TestReclaim_ACallIsAnsweredInPart(t *testing.T) {
	adopts(t, func(t *testing.T, c *Coordinator, g *gate, _ func(...claims) bool) {
		g.one = true
		all := []claims{due(&c.parts[0], 1), due(&c.parts[1], 1)}
		for n, want := range map[int]bool{1: false, 2: true} {
			got := false
			go func() {
				_ = c.reclaim(t.Context(), all[:n], c.opts.CallTimeout, func(_ []claims, answered bool) { got = got || answered })
			}()
			synctest.Wait()
			g.answer(t, errExpired)
			if got != want {
				t.Errorf("one of %d partitions fails: answered %t", n, got)
			}
		}
	})
}

// An arbiter that does not answer within CallTimeout is called silent also where a pass goes on
// before, as it may only be slow then.
func TestReclaim_GoesOnBeforeTheArbiterIsSilent(t *testing.T) {
	adopts(t, func(t *testing.T, c *Coordinator, g *gate, _ func(...claims) bool) {
		g.one = true
		silent := func() bool {
			h := &c.remote.health
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.silent
		}
		for _, answered := range []bool{true, false} {
			if err := c.reclaim(t.Context(), []claims{due(&c.parts[0], 1)}, c.opts.CallTimeout/2, nil); err == nil || silent() {
				t.Errorf("after half of CallTimeout: %v, silent %t", err, silent())
			}
			if answered {
				g.answer(t, nil)
			}
			time.Sleep(c.opts.CallTimeout/2 - 1)
			synctest.Wait()
			early := silent()
			time.Sleep(2 * time.Nanosecond)
			synctest.Wait()
			if early || silent() == answered {
				t.Errorf("answered %t: silent before CallTimeout %t, after it %t", answered, early, silent())
			}
		}
	})
}
