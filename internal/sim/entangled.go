package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/circle"
	"github.com/holdfast-go/holdfast/internal/held"
	"github.com/holdfast-go/holdfast/internal/history"
)

// A task locks some keys one after another, in any order, so that tasks wait for each other in
// circles.
type task struct {
	by    *start
	label string
	waits []*stay // the last one may go on
	holds []*stay
	all   []circle.Claim  // of one that locks all of them together, in this order: it waits for one and has others, as long as it waits
	ctx   context.Context // that carries the locks of such a task, nil if none does
}

// A stay is a key that a task has, or waits for; or that some caller wants to write.
type stay struct {
	circle.Claim
	from, until time.Time // until is zero as long as it lasts
	tries       bool      // it does not wait
	by          *start    // of one that wants to write
	untold      bool      // the arbiter may have it in its queue for longer, as the process did not reach it, or a request came twice
}

// tasks are those of all processes. The judge's mutex protects them.
type tasks struct {
	all     map[string]*task // by label
	writers map[string][]*stay

	sessions map[string]*start    // by ID
	named    map[string][]*naming // by key

	last    int
	found   int // circles that callers were told of
	readers int // waits for another reader in them
}

// entangle locks keys one by one, with a context that carries those before, and then unlocks them.
func (s *start) entangle(ctx context.Context, number int, rng *rand.Rand) {
	w := s.n.w
	x := w.h.begins(s)
	ctx = coord.WithLabel(coord.WithLocker(ctx), x.label)
	var ends []func()
	for _, i := range rng.Perm(w.cfg.Keys)[:min(2+rng.IntN(2), w.cfg.Keys)] {
		if end := s.next(ctx, x, number, w.keys[i], w.cfg.taskReads(rng)); end != nil {
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

// taskReads draws whether a task reads its next key.
func (cfg Config) taskReads(rng *rand.Rand) bool {
	if cfg.hasty {
		return rng.IntN(5) > 0
	}
	return rng.IntN(3) == 0
}

// next locks one more key. It returns nil if that failed.
func (s *start) next(ctx context.Context, x *task, number int, key string, reads bool) (end func()) {
	w, called, wants := s.n.w, time.Now(), circle.Claim{Key: key}
	record := s.rec.Lock
	if reads {
		record, wants.Read = s.rec.RLock, true
	}
	call := record(number, key)
	done := w.h.waits(x, wants)
	var l coord.Lock
	var r coord.ReadLock
	var err error
	if reads {
		r, err = s.c.RLock(ctx, key)
	} else {
		l, err = s.c.Lock(ctx, key)
	}
	done()
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

// has notes that a task has a key, and returns the function that ends that.
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

// waits notes that a task waits, for one key or all of its own, until done is called.
func (h *judge) waits(x *task, key circle.Claim) (done func()) {
	claims := x.all
	if claims == nil {
		claims = []circle.Claim{key}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	wait := &stay{Claim: key, from: time.Now()}
	x.waits = append(x.waits, wait)
	var writes []*stay
	for _, c := range claims {
		if !c.Read {
			writes = append(writes, h.writer(x.by, c.Key, false))
		}
	}
	return func() {
		h.ends(wait)
		for _, s := range writes {
			h.gone(x.by, s)
		}
	}
}

// wants notes that a caller wants to write, and waits if it has to, or only tries; until done is
// called.
func (h *judge) wants(by *start, key string, tries bool) (done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.writer(by, key, tries)
	return func() { h.gone(by, s) }
}

// gone notes that a writer waits no more.
func (h *judge) gone(by *start, s *stay) {
	untold := by.client.wasRough(s.from)
	h.mu.Lock()
	defer h.mu.Unlock()
	s.until, s.untold = time.Now(), untold
}

// writer is wants with the mutex held.
func (h *judge) writer(by *start, key string, tries bool) *stay {
	s := &stay{Claim: circle.Claim{Key: key}, from: time.Now(), tries: tries, by: by}
	if h.tasks.writers == nil {
		h.tasks.writers = make(map[string][]*stay)
	}
	h.tasks.writers[key] = append(h.tasks.writers[key], s)
	return s
}

func (h *judge) ends(had *stay) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if had.until.IsZero() {
		had.until = time.Now()
	}
}

// toldOf checks the circle that a task was told of, if it was: at some time each task of it waited
// for its key, and had the key that the task before it waited for.
func (h *judge) toldOf(x *task, err error) {
	d, ok := errors.AsType[*coord.DeadlockError](err)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tasks.found++
	if len(d.Cycle) == 0 || d.Cycle[0].Label != x.label || x.all == nil && d.Cycle[0].Key != x.waits[len(x.waits)-1].Key {
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
		return
	}
	for i, w := range d.Cycle {
		next := d.Cycle[(i+1)%len(d.Cycle)]
		switch {
		case w.Key != next.Has:
			h.fail("%q waits for %q, and %q has %q: %v", w.Label, w.Key, next.Label, next.Has, d)
		case w.Mode == "read" && next.HasMode == "read":
			if h.tasks.readers++; !h.behind(w, next, from, until) {
				h.fail("%q reads %q, for which no writer has waited, and %q waits for it: %v; %s; %s", next.Label, w.Key, w.Label, d, h.wrote(w.Key, from),
					h.named(w.Key, from))
				h.bad = append(h.bad, h.state(w.Key)...)
			}
		}
	}
}

// behind reports whether a reader could have waited for another one as there was a writer: within
// the time when all of the circle were there, or, in one process, since the other reader came. The
// arbiter may have a writer in its queue until its session is dead, and names it until then.
func (h *judge) behind(w, next coord.DeadlockWait, from, until time.Time) bool {
	same := w.Session == next.Session
	if same {
		from = h.tasks.all[next.Label].in(next)[1].from
	}
	return slices.ContainsFunc(h.tasks.writers[w.Key], func(s *stay) bool {
		ended := s.until
		if s.untold {
			ended = ended.Add(h.ttl)
		}
		return (same || !s.tries) && (until.IsZero() || !s.from.After(until)) && (s.until.IsZero() || !ended.Before(from))
	}) || h.behindRest(w.Key, w.Session, from)
}

// wrote tells how long ago the last callers that wanted to write a key came and ended, counted from
// a time.
func (h *judge) wrote(key string, from time.Time) string {
	var text strings.Builder
	all := h.tasks.writers[key]
	for _, s := range all[max(0, len(all)-5):] {
		fmt.Fprintf(&text, " a writer of %v (tries: %v, untold: %v) from %v", s.by, s.tries, s.untold, s.from.Sub(from))
		if !s.until.IsZero() {
			fmt.Fprintf(&text, " until %v", s.until.Sub(from))
		}
	}
	return "counted from the last of them:" + text.String()
}

// in returns the wait and the hold that make the task part of a circle, nil for an unknown one.
func (x *task) in(w coord.DeadlockWait) (parts [2]*stay) {
	if x == nil || len(x.waits) == 0 {
		return parts
	}
	wants, has := circle.Claim{Key: w.Key, Read: w.Mode == "read"}, circle.Claim{Key: w.Has, Read: w.HasMode == "read"}
	if x.all != nil {
		if slices.Contains(x.all, wants) && slices.Index(x.all, has) >= 0 && slices.Index(x.all, has) < slices.Index(x.all, wants) {
			return [2]*stay{x.waits[0], x.waits[0]}
		}
		return parts
	}
	for _, s := range x.waits { // for each of its keys once
		if s.Claim == wants {
			parts[0] = s
		}
	}
	for _, s := range x.holds {
		if s.Claim == has {
			parts[1] = s
		}
	}
	return parts
}

// stuck returns a task's wait with its present holds, if it has waited for long enough.
func (x *task) stuck(within time.Duration) (w circle.Wait, ok bool) {
	if len(x.waits) == 0 || x.by.dead.Load() {
		return w, false
	}
	wait := x.waits[len(x.waits)-1]
	if !wait.until.IsZero() || time.Since(wait.from) < within {
		return w, false
	}
	w = circle.Wait{Process: x.label, Claim: wait.Claim, Began: wait.from.UnixNano()}
	for _, s := range x.holds {
		if s.until.IsZero() {
			w.Holds = append(w.Holds, circle.Hold{Claim: s.Claim})
		}
	}
	if x.ctx != nil {
		has := carried(x.ctx)
		for _, c := range x.all {
			if !has[c.Key] {
				w.Claim = c
				break
			}
			w.Holds = append(w.Holds, circle.Hold{Claim: c})
		}
	}
	return w, true
}

// carried returns the keys whose locks a context carries.
func carried(ctx context.Context) map[string]bool {
	keys := make(map[string]bool)
	for {
		h, ok := ctx.Value(held.Key{}).(interface {
			Held() (l coord.Lock, outer context.Context)
		})
		if !ok {
			return keys
		}
		l, outer := h.Held()
		key, _ := fallback.Split(l.Key())
		keys[key], ctx = true, outer
	}
}

// missed reports circles that have lasted for longer than it takes to find them.
func (h *judge) missed(within time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var waits []circle.Wait
	for _, label := range slices.Sorted(maps.Keys(h.tasks.all)) {
		w, ok := h.tasks.all[label].stuck(within)
		if !ok {
			continue
		}
		if slices.ContainsFunc(h.tasks.writers[w.Key], func(s *stay) bool { return s.until.IsZero() }) {
			w.Behind.Order = 1 // and it has waited for so long that no grant is on its way
		}
		waits = append(waits, w)
	}
	for _, c := range circle.Find(waits) {
		text := ""
		for _, l := range c {
			text += fmt.Sprintf(" %v's %s has %v and waits for %v since %v ago;", h.tasks.all[l.Process].by, l.Process, l.By.Claim, l.Claim,
				time.Since(time.Unix(0, l.Began)))
		}
		h.fail("I8: a circle was not found:%s", text)
		for _, l := range c {
			h.bad = append(h.bad, h.state(l.Key)...)
		}
	}
}
