package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/circle"
	"github.com/holdfast-go/holdfast/internal/history"
)

// A task locks some keys one after another, in any order, so that tasks wait for each other in circles.
type task struct {
	by    *start
	label string
	wait  *stay // the last one
	holds []*stay
	keys  []string // of one that locks all of them together: it waits for one and has others, as long as it waits
}

// A stay is a key that a task has, or waits for.
type stay struct {
	circle.Claim
	from, until time.Time // until is zero as long as it lasts
}

// tasks are those of all processes. The judge's mutex protects them.
type tasks struct {
	all   map[string]*task // by label
	last  int
	found int // circles that callers were told of
}

// entangle locks keys one by one, with a context that carries those before, and then unlocks them.
func (s *start) entangle(ctx context.Context, number int, rng *rand.Rand) {
	w := s.n.w
	x := w.h.begins(s)
	ctx = coord.WithLabel(coord.WithLocker(ctx), x.label)
	var ends []func()
	for _, i := range rng.Perm(w.cfg.Keys)[:min(2+rng.IntN(2), w.cfg.Keys)] {
		if end := s.next(ctx, x, number, w.keys[i], rng.IntN(3) == 0); end != nil {
			ends = append(ends, end)
			time.Sleep(w.t(20*time.Millisecond) * time.Duration(rng.IntN(2)))
			continue
		}
		break
	}
	for _, end := range slices.Backward(ends) {
		if s.h.clock.wait(); s.dead.Load() {
			return
		}
		end()
	}
}

// next locks one more key. It returns nil if that failed.
func (s *start) next(ctx context.Context, x *task, number int, key string, reads bool) (end func()) {
	w, called, wants := s.n.w, time.Now(), circle.Claim{Key: key}
	record := s.rec.Lock
	if reads {
		record, wants.Read = s.rec.RLock, true
	}
	call := record(number, key)
	w.h.waits(x, wants)
	var l coord.Lock
	var r coord.ReadLock
	var err error
	if reads {
		r, err = s.c.RLock(ctx, key)
	} else {
		l, err = s.c.Lock(ctx, key)
	}
	w.h.waited(x)
	s.h.clock.wait()
	switch {
	case s.dead.Load():
		return nil
	case err != nil:
		call.Refused()
		w.h.toldOf(x, err)
		return nil
	case reads:
		u := &use{grant: &grant{by: s, called: called, at: time.Now(), ctx: endOf(r), token: uint64(r.Fence())}}
		hold := call.Granted(u.token)
		w.h.shares(key, u)
		return s.has(x, wants, u.grant, hold, r.Unlock)
	}
	hold := call.Granted(uint64(l.Fence()))
	return s.has(x, wants, w.h.granted(s, key, l, called), hold, l.Unlock)
}

// has notes that a task has a key, and returns what ends that.
func (s *start) has(x *task, key circle.Claim, g *grant, hold *history.Hold, unlock func() error) (end func()) {
	h := s.n.w.h
	h.mu.Lock()
	had := &stay{Claim: key, from: time.Now()}
	x.holds = append(x.holds, had)
	h.mu.Unlock()
	lost := context.AfterFunc(g.ctx, func() { h.ends(had) })
	stop := s.watch(g, hold)
	return func() {
		hold.See(func() bool { return g.ctx.Err() == nil })
		stop()
		lost()
		h.ends(had)
		s.unlock(key.Key, g, hold, unlock)
	}
}

// begins notes a new task.
func (h *judge) begins(by *start) *task {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tasks.last++
	x := &task{by: by, label: fmt.Sprint("task ", h.tasks.last)}
	if h.tasks.all == nil {
		h.tasks.all = make(map[string]*task)
	}
	h.tasks.all[x.label] = x
	return x
}

func (h *judge) waits(x *task, key circle.Claim) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x.wait = &stay{Claim: key, from: time.Now()}
}

func (h *judge) waited(x *task) {
	h.mu.Lock()
	defer h.mu.Unlock()
	x.wait.until = time.Now()
}

func (h *judge) ends(had *stay) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if had.until.IsZero() {
		had.until = time.Now()
	}
}

// toldOf checks the circle that a task was told of, if it was: there must have been a time at which each task of it waited for the key, and
// had the one for which the task before it waited.
func (h *judge) toldOf(x *task, err error) {
	d, ok := errors.AsType[*coord.DeadlockError](err)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tasks.found++
	if len(d.Cycle) == 0 || d.Cycle[0].Label != x.label || x.keys == nil && d.Cycle[0].Key != x.wait.Key {
		h.fail("%s was told of a circle that does not begin with it: %v", x.label, d)
		return
	}
	var from, until time.Time
	for _, w := range d.Cycle {
		for _, s := range h.tasks.all[w.Label].in(w) {
			if s == nil {
				h.fail("%q did not wait for %q with %q: %v", w.Label, w.Key, w.Has, d)
				return
			}
			if s.from.After(from) {
				from = s.from
			}
			if !s.until.IsZero() && (until.IsZero() || s.until.Before(until)) {
				until = s.until
			}
		}
	}
	if !until.IsZero() && until.Before(from) {
		h.fail("not all of a circle were there at the same time: %v", d)
	}
}

// in returns the task's wait and its hold by which it is part of a circle, nil for what is not known.
func (x *task) in(w coord.DeadlockWait) (parts [2]*stay) {
	if x == nil || x.wait == nil {
		return parts
	}
	if x.wait.Key == w.Key {
		parts[0] = x.wait
	}
	if slices.Contains(x.keys, w.Key) && slices.Contains(x.keys, w.Has) && w.Key != w.Has {
		return [2]*stay{x.wait, x.wait}
	}
	for _, s := range x.holds {
		if s.Key == w.Has {
			parts[1] = s
		}
	}
	return parts
}

// missed reports circles that have lasted for longer than it takes to find them.
func (h *judge) missed(within time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var waits []circle.Wait
	for _, label := range slices.Sorted(maps.Keys(h.tasks.all)) {
		x := h.tasks.all[label]
		if x.wait == nil || !x.wait.until.IsZero() || x.by.dead.Load() || time.Since(x.wait.from) < within {
			continue
		}
		w := circle.Wait{Process: label, Claim: x.wait.Claim, Locked: true, Began: x.wait.from.UnixNano()}
		for _, s := range x.holds {
			if s.until.IsZero() {
				w.Holds = append(w.Holds, circle.Hold{Claim: s.Claim})
			}
		}
		waits = append(waits, w)
	}
	for _, c := range circle.Find(waits, nil) {
		text := ""
		for _, l := range c {
			text += fmt.Sprintf(" %v's %s has %q and waits for %q since %v ago;", h.tasks.all[l.Process].by, l.Process, l.By.Key, l.Key,
				time.Since(h.tasks.all[l.Process].wait.from))
		}
		h.fail("I8: a circle was not found:%s", text)
	}
}
