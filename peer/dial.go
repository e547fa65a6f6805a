package peer

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"time"
)

// newDialler starts a dialler. The caller holds t.mu and has seen that t is not closed.
func (t *Transport) newDialler(name, addr string) *dialler {
	d := &dialler{name: name, addr: addr, ended: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
	d.ctx, d.cancel = context.WithCancel(t.ctx)
	t.wg.Go(func() { t.keepDialling(d) })
	return d
}

// keepDialling dials the node whenever there is no stream with it, whichever side made the last
// one, until the node is removed.
func (t *Transport) keepDialling(d *dialler) {
	retry := t.opts.Retry
	most := 20 * retry
	pause := retry
	for d.ctx.Err() == nil {
		if addr, idle := t.idle(d); idle {
			err := t.dial(d, addr)
			wait := pause
			switch {
			case err == nil:
				wait = 0
			case isSlow(err):
				wait = 100 * retry
			default:
				pause = min(2*pause, most)
			}
			if err != nil {
				d.sleep(jitter(wait), d.changed)
				continue
			}
		}
		since := time.Now()
		select {
		case <-d.ctx.Done():
			return
		case <-d.ended:
		}
		// A stream that never lasts must not be made as fast as it breaks.
		if time.Since(since) > most {
			pause = retry
		}
		d.sleep(jitter(pause), d.changed)
		pause = min(2*pause, most)
	}
}

// idle returns the node's address and whether it has no stream.
func (t *Transport) idle(d *dialler) (addr string, idle bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[d.name]
	if p == nil || p.dialler != d {
		return "", false // removed, and ctx is cancelled
	}
	if p.cur == nil {
		select {
		case <-d.ended: // of a stream that we do not wait for any more
		default:
		}
	} else {
		d.failing = Failure{}
	}
	return d.addr, p.cur == nil
}

// dial makes one attempt. It returns nil if there is a stream now.
func (t *Transport) dial(d *dialler, addr string) error {
	select {
	case t.dials <- struct{}{}:
		defer func() { <-t.dials }()
	case <-d.ctx.Done():
		return d.ctx.Err()
	}
	ctx, cancel := context.WithTimeout(d.ctx, greetingLimit)
	defer cancel()
	c, err := t.opts.Dial(ctx, addr)
	answered := err == nil
	if answered {
		var s, prev *Stream
		if s, prev, err = t.conversation(c, d.name).greet(); s != nil {
			t.mu.Lock()
			d.failing = Failure{} // of before: the next one is of another time
			t.mu.Unlock()
			t.wg.Go(func() { s.run(prev) })
			d.unfound = time.Time{}
			return nil
		}
	}
	if d.ctx.Err() == nil && !isQuiet(err) {
		// A node that is about to go accepts, and says nothing: that is like one that cannot be
		// reached.
		answered = answered && !errors.Is(err, errSilent) && !errors.Is(err, os.ErrDeadlineExceeded)
		t.failed(d, addr, answered, err)
		switch {
		case d.early(err, t.opts.Retry):
			t.log.to.Debug("holdfast: no stream with the node yet", "node", d.name, "address", addr, "error", err)
		case answered:
			t.log.warn(d.name+" "+logKey(err), "holdfast: no stream with the node", "node", d.name, "address", addr, "error", err)
		}
	}
	return err
}

// early reports whether an attempt failed as one side does not find the other at its arbiter, and
// may soon: a session that has just begun is not known everywhere.
func (d *dialler) early(err error, retry time.Duration) bool {
	switch {
	case !isStranger(err):
		d.unfound = time.Time{}
		return false
	case d.unfound.IsZero():
		d.unfound = time.Now()
	}
	return time.Since(d.unfound) < 100*retry // 5 s
}

// A Failure is a node that [Transport.SetPeers] has named and that cannot be reached: it has no
// stream, and attempts to connect fail.
type Failure struct {
	Node      string
	Addr      string    // that was dialled
	Since     time.Time // of the first attempt that failed, of the present series
	Err       error     // of the last one
	Connected bool      // there was a connection, and then one side refused it, as a rule because of its settings
}

// Failing returns the nodes that cannot be reached now, in no order. Attempts go on.
func (t *Transport) Failing() (all []Failure) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.peers {
		if d := p.dialler; d != nil && d.failing.Err != nil && p.cur == nil {
			all = append(all, d.failing)
		}
	}
	return all
}

// failed notes that an attempt has failed.
func (t *Transport) failed(d *dialler, addr string, connected bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d.addr != addr {
		return // there is another one now
	}
	f := Failure{Node: d.name, Addr: addr, Since: d.failing.Since, Err: err, Connected: connected}
	if d.failing.Err == nil {
		f.Since = time.Now()
	}
	d.failing = f
}

// sleep waits for about that long, or until the dialler is stopped or more has a token.
func (d *dialler) sleep(wait time.Duration, more <-chan struct{}) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-more:
	case <-d.ctx.Done():
	}
}

// jitter returns half of d to all of it, so that nodes do not dial in step.
func jitter(d time.Duration) time.Duration {
	if d <= 1 {
		return d
	}
	return d/2 + rand.N(d/2)
}
