package peer

import (
	"context"
	"math/rand/v2"
	"time"
)

// newDialler starts a dialler. The caller holds t.mu and has seen that t is not closed.
func (t *Transport) newDialler(name, addr string) *dialler {
	d := &dialler{name: name, addr: addr, ended: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
	d.ctx, d.cancel = context.WithCancel(t.ctx)
	t.wg.Go(func() { t.keepDialling(d) })
	return d
}

// keepDialling dials the node whenever there is no stream with it, whoever made the last
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
	}
	return d.addr, p.cur == nil
}

// dial makes one attempt. It returns nil if there is a stream now.
func (t *Transport) dial(d *dialler, addr string) error {
	ctx, cancel := context.WithTimeout(d.ctx, greetingLimit)
	defer cancel()
	c, err := t.opts.Dial(ctx, addr)
	if err == nil {
		var s, prev *Stream
		if s, prev, err = t.greet(c, d.name, addr); s != nil {
			t.wg.Go(func() { s.run(prev) })
			return nil
		}
	}
	if d.ctx.Err() == nil && !isQuiet(err) {
		t.log.warn(d.name+" "+logKey(err), "peer: no stream with the node", "node", d.name, "address", addr, "error", err)
	}
	return err
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
