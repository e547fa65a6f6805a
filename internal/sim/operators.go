package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// overtime returns how long an operator's call may last after its context. A store without a clock
// is waited for, also when it tries again.
func (w *world) overtime() time.Duration {
	if w.cfg.Observed {
		return w.t(20 * time.Second)
	}
	return 100 * time.Millisecond
}

// operate makes an operator's calls at the node, if its process has begun.
func (w *world) operate(f Fault) {
	s, other := w.nodes[f.Node].now, w.nodes[f.Other].now
	select {
	case <-s.ready:
	default:
		return
	}
	if s.c == nil {
		return
	}
	o := &operator{s: s, f: f, rng: rand.New(rand.NewPCG(w.cfg.Seed, uint64(f.At)))}
	switch f.Kind {
	case ask:
		s.work.Go(o.asks)
	case breaks:
		s.work.Go(o.breaks)
	case rotate:
		s.work.Go(func() { _ = o.call("RotateSecret", s.c.RotateSecret) })
	case drain:
		s.work.Go(func() { o.drains(other) })
		w.after(f.For, func() { w.stop(s, f) })
	}
}

// stop closes a process that may have been drained, in half of the cases. Another one starts soon
// in its place.
func (w *world) stop(s *start, f Fault) {
	n := s.n
	if n.now != s || !f.Some[0] {
		return
	}
	w.work.Go(n.leave())
	w.after(w.t(2*time.Second), func() {
		if n.now == nil {
			n.start()
		}
	})
}

// An operator makes calls at a process.
type operator struct {
	s   *start
	f   Fault
	rng *rand.Rand
}

// call makes a call that must end soon after its context, and returns its error.
func (o *operator) call(name string, do func(context.Context) error) error {
	w := o.s.n.w
	limit := w.t(time.Duration(1+o.rng.IntN(5000)) * time.Millisecond)
	if o.rng.IntN(4) == 0 {
		limit /= 100
	}
	ctx, cancel := context.WithTimeout(o.s.ctx, limit)
	defer cancel()
	begin := time.Now()
	err := do(ctx)
	if took := time.Since(begin); took > limit+w.overtime() && !o.s.dead.Load() && !o.s.h.stoodSince(begin, took) {
		w.h.say("%v: %s took %v, and had %v", o.s, name, took, limit)
	}
	w.asked.Add(1)
	return err
}

// asks makes every query that an operator can, of the process and of another one.
func (o *operator) asks() {
	w, c := o.s.n.w, o.s.c
	key, other := w.keys[o.rng.IntN(len(w.keys))], fmt.Sprint("node", o.f.Other)
	for _, x := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"Inspect", func(ctx context.Context) error { _, err := c.Inspect(ctx, key); return err }},
		{"Semaphore.Inspect", func(ctx context.Context) error { _, err := o.s.semaphore(key).Inspect(ctx); return err }},
		{"Partitions", func(ctx context.Context) error { _, err := c.Partitions(ctx); return err }},
		{"Processes", func(ctx context.Context) error { _, err := c.Processes(ctx); return err }},
		{"Report", func(ctx context.Context) error { _, err := c.Report(ctx, other); return err }},
		{"Held", func(ctx context.Context) error { _, err := c.Held(ctx, other); return err }},
		{"Top", func(ctx context.Context) error { _, err := c.Top(ctx, 10, coord.LongestWait); return err }},
		{"Settled", func(ctx context.Context) error { return c.Settled(ctx, len(w.nodes)) }},
	} {
		_ = o.call(x.name, x.do)
	}
	c.Nodes()
}

// breaks takes a key from one of its holders.
func (o *operator) breaks() {
	w, c := o.s.n.w, o.s.c
	key := w.keys[o.rng.IntN(len(w.keys))]
	inspect, take := c.Inspect, func(ctx context.Context, token coord.Fence) error { return c.Break(ctx, key, token, "to try it") }
	permits := o.rng.IntN(3) == 0
	if permits {
		sem := o.s.semaphore(key)
		inspect = func(ctx context.Context, _ string) (coord.KeyInfo, error) { return sem.Inspect(ctx) }
		take = func(ctx context.Context, token coord.Fence) error { return sem.Break(ctx, token, "to try it") }
	}
	var info coord.KeyInfo
	if o.call("Inspect", func(ctx context.Context) (err error) { info, err = inspect(ctx, key); return err }) != nil {
		return
	}
	var tokens []coord.Fence
	if h := info.Holder; h != nil {
		tokens = append(tokens, h.Fence)
	}
	for i := range info.Shared {
		tokens = append(tokens, info.Shared[i].Fence)
	}
	if len(tokens) == 0 {
		return
	}
	token := tokens[o.rng.IntN(len(tokens))]
	w.h.breaking(token)
	if o.call("Break", func(ctx context.Context) error { return take(ctx, token) }) == nil {
		w.broken.Add(1)
		if !permits {
			w.h.broke(key, uint64(token))
		}
	}
}

// drains makes the process give its partitions away, or asks it to at another one.
func (o *operator) drains(other *start) {
	w, s := o.s.n.w, o.s
	if o.f.Both && other != nil {
		select {
		case <-other.ready:
			if other.c != nil {
				if o.call("DrainNode", func(ctx context.Context) error { return s.c.DrainNode(ctx, fmt.Sprint("node", o.f.Other), "to try it") }) == nil {
					other.givesAway()
				}
				return
			}
		default:
		}
	}
	if o.call("Drain", s.c.Drain) == nil {
		w.drained.Add(1)
		s.drained.Store(true)
	}
}

// givesAway waits until the process has given its partitions away, as another one has asked it to.
func (s *start) givesAway() {
	w := s.n.w
	for range 60 {
		time.Sleep(w.t(time.Second))
		if s.dead.Load() {
			return // it may have been the process after it that was asked
		}
		if wire.Owned(s.c) == 0 {
			w.drained.Add(1)
			s.drained.Store(true)
			return
		}
	}
}

// gaveAway checks that drained processes serve no partitions.
func (w *world) gaveAway() {
	for _, s := range w.running() {
		if !s.drained.Load() {
			continue
		}
		for p := range uint32(partitions) {
			if epoch, until := wire.Serves(s.c, p); epoch > 0 && !lease.Past(until, s.h.read()) {
				w.h.say("%v was drained, and serves partition %d at epoch %d", s, p, epoch)
				s.drained.Store(false)
			}
		}
	}
}

// breaking notes that the lock or permits with a token are going to be broken.
func (h *judge) breaking(token coord.Fence) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.breaks[token] = true
}

// broke notes that Break has reported the loss of the lock or permits with the token: its holder
// has been told before.
func (h *judge) broke(key string, token uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.of(key)
	all := []*grant{k.holder}
	for _, u := range k.uses {
		all = append(all, u.grant)
	}
	for _, g := range all {
		if g != nil && g.token == token && !g.released && !g.by.dead.Load() && g.ctx.Err() == nil {
			h.fail("%s has %q with token %d.%d, which was broken", g.by, key, token>>32, uint32(token))
			h.bad = append(h.bad, h.state(key)...)
		}
	}
}

// lost looks at why a lock was lost: it is broken only if that was called.
func (h *judge) lost(by *start, key string, err error) {
	var loss *coord.LossError
	if !errors.As(err, &loss) || loss.Cause != coord.Broken {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.breaks[loss.Fence] {
		h.fail("%s has lost %q with token %v, which was not to be broken: %v", by, key, loss.Fence, err)
	}
}
