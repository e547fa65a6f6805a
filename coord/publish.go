package coord

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// listsObservers reports whether an observer is a session there: the namespace keeps no results.
func listsObservers(ns fallback.Namespace) bool {
	_, ok := ns.(fallback.ResultStore)
	return !ok
}

// publishFirst is the first publish. Other sessions may be about to use a longer Grace: then it is
// in vain until they have renewed.
func (o *observing) publishFirst(ctx context.Context) error {
	for {
		err := o.publish(ctx, fingerprintFor)
		if !errors.Is(err, fallback.ErrWait) {
			return err
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
	ns, op, sent := *c.remote.namespace.Load(), OpSaveResult, c.now()
	var err error
	if results, ok := ns.(fallback.ResultStore); ok {
		// The arbiter on Redis keeps what has token 1 at maxmemory as well.
		_, err = results.SaveResult(ctx, 0, o.key, []byte(o.card), 1, keep)
	} else {
		op = OpOpen
		id, r := observerSession(o.x.self.name), fallback.Registration{TTL: keep, Info: o.card}
		var a fallback.Renewal
		if a, err = ns.Open(ctx, id, r); err == nil && !a.Alive { // this process stood still
			if err = ns.CloseSession(ctx, id); err == nil {
				_, err = ns.Open(ctx, id, r)
			}
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
	sent := c.now()
	c.called(OpCloseSession, sent, ns.CloseSession(ctx, observerSession(o.x.self.name)))
}
