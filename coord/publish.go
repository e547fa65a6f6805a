package coord

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// listsObservers reports whether an observer is a session there: the namespace keeps no results.
func listsObservers(ns fallback.Namespace) bool {
	_, ok := ns.(fallback.ResultStore)
	return !ok
}

// space returns the namespace for a call that may begin Grace, or that makes the table of sessions
// anew if the server has lost it. An observer makes none before it knows how long Grace is.
func (c *Coordinator) space(ctx context.Context) (fallback.Namespace, error) {
	ns := c.remote.namespace.Load()
	if ns == nil {
		return nil, fmt.Errorf("%w: no session yet", ErrUnavailable)
	}
	d, ok := c.remote.arbiter.(fallback.Describer)
	if !c.opts.Observe || !ok {
		return *ns, nil
	}
	var err error
	if o := c.cluster.self.observing; listsObservers(*ns) {
		err = o.relist(ctx, d)
	} else {
		err = o.remark(ctx, d)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return *c.remote.namespace.Load(), nil
}

// partitionSpace is space for a call that may begin Grace of partitions. A process that is no
// observer knows how long that is while it has a session, as others wait for it.
func (c *Coordinator) partitionSpace(ctx context.Context) (fallback.Namespace, error) {
	ns, err := c.space(ctx)
	if c.opts.Observe || err != nil {
		return ns, err
	}
	if s := c.sessions.current(); s == nil || lease.Past(s.Deadline(), c.now()) {
		return nil, errSilent
	}
	return ns, nil
}

// remark is for an observer that is no session, and hears of no other Grace by renewals: it looks
// whether there is one.
func (o *observing) remark(ctx context.Context, d fallback.Describer) error {
	c := o.x.c
	o.mu.Lock()
	defer o.mu.Unlock()
	if c.life.ctx.Err() != nil {
		return context.Cause(c.life.ctx)
	}
	found, err := d.Describe(ctx, c.opts.Namespace)
	if err != nil || found.Grace == o.grace || found.Partitions != len(c.parts) {
		return err
	}
	fresh, err := c.remote.arbiter.Attach(ctx, watching(found))
	if err != nil {
		return err
	}
	o.old = append(o.old, *c.remote.namespace.Load())
	o.grace = found.Grace
	c.remote.namespace.Store(&fresh)
	return nil
}

// relist is for an observer that is listed as a session. While it is, no session is opened that
// needs a longer Grace than it uses. One that stood still may be listed no more: it makes no calls
// before it is again. It does not make a lost table anew: nodes know the Grace for that.
func (o *observing) relist(ctx context.Context, d fallback.Describer) error {
	c := o.x.c
	if o.card == "" || o.isListed() { // it has just attached, or is
		return nil
	}
	if _, err := d.Describe(ctx, c.opts.Namespace); err != nil {
		return err
	}
	err := o.publish(ctx, o.keeps())
	if errors.Is(err, fallback.ErrWait) { // now it uses the Grace that the arbiter has told
		err = o.publish(ctx, o.keeps())
	}
	return err
}

// isListed reports whether the arbiter surely lists the observer.
func (o *observing) isListed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !lease.Past(o.listed, o.x.c.now())
}

// keeps is for how long an arbiter keeps the card. One that lists it as a session has others wait
// for a crashed observer as for a node.
func (o *observing) keeps() time.Duration {
	if listsObservers(*o.x.c.remote.namespace.Load()) {
		return o.x.c.opts.SessionTTL
	}
	return fingerprintFor
}

// publishFirst is the first publish. Other sessions may be about to use a longer Grace: then it is
// in vain until they have renewed, and where the table is full until it is known that some are
// dead. That may take longer than ctx, which gives way to a longer time where given has no
// deadline.
func (o *observing) publishFirst(ctx, given context.Context) error {
	_, limited := given.Deadline()
	for {
		err := o.publish(ctx, o.keeps())
		if !errors.Is(err, fallback.ErrWait) {
			return err
		}
		if !limited {
			limited = true
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(given, o.x.c.waiting())
			defer cancel()
		}
		select {
		case <-time.After(longerGrace):
		case <-ctx.Done():
			return err
		}
	}
}

// publish makes the arbiter keep the observer's card.
func (o *observing) publish(ctx context.Context, keep time.Duration) error {
	c := o.x.c
	ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
	ns, op, sent := *c.remote.namespace.Load(), OpSaveResult, c.now()
	var err error
	if results, ok := ns.(fallback.ResultStore); ok {
		// The arbiter on Redis keeps a result with token 1 at maxmemory as well.
		_, err = results.SaveResult(ctx, 0, o.key, []byte(o.card), 1, keep)
	} else {
		op = OpOpen
		id, r := observerSession(o.x.self.name), fallback.Registration{TTL: keep, Info: o.card}
		var a fallback.Renewal
		if a, err = ns.Open(ctx, id, r); err == nil && !a.Alive { // this process stood still
			if err = ns.CloseSession(ctx, id); err == nil {
				a, err = ns.Open(ctx, id, r)
			}
		}
		if err == nil && a.Alive {
			o.mu.Lock()
			o.listed = sent.Add(keep - c.opts.Margin)
			o.mu.Unlock()
		}
	}
	c.called(op, sent, err)
	if err != nil {
		return fmt.Errorf("%w: the observer's key could not be published: %w", ErrUnavailable, err)
	}
	return nil
}

// withdraw makes the arbiter forget the card, which would end by itself.
func (o *observing) withdraw(ctx context.Context) {
	c := o.x.c
	ns := *c.remote.namespace.Load()
	if _, ok := ns.(fallback.ResultStore); ok {
		_ = o.publish(ctx, time.Millisecond)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	if !o.isListed() {
		return // the call might make the table anew: see relist
	}
	sent := c.now()
	c.called(OpCloseSession, sent, ns.CloseSession(ctx, observerSession(o.x.self.name)))
}
