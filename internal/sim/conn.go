package sim

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// conn is one end of a connection. Bytes arrive in order, each write after a while of its own;
// while the link is cut they wait, as TCP goes on trying.
type conn struct {
	here, there *host
	other       *conn
	in          *half
}

// half is one direction.
type half struct {
	timer  *time.Timer   // the reader has to look when it fires,
	signal chan struct{} // or now; capacity 1

	mu       sync.Mutex // protects the fields below
	chunks   []chunk
	last     time.Time // when the last chunk arrives
	err      error     // the reader's, once the chunks are used up
	now      bool      // the error comes before the chunks that are left
	deadline time.Time
}

type chunk struct {
	data []byte
	at   time.Time
}

func newHalf() *half { return &half{timer: time.NewTimer(0), signal: make(chan struct{}, 1)} }

// poke makes the reader look.
func (h *half) poke() {
	select {
	case h.signal <- struct{}{}:
	default:
	}
}

// wait makes the reader look at a moment, or at its deadline, whichever is first; the zero time is
// no moment. h.mu is held.
func (h *half) wait(at time.Time) {
	if !h.deadline.IsZero() && (at.IsZero() || h.deadline.Before(at)) {
		at = h.deadline
	}
	if at.IsZero() {
		h.timer.Stop()
	} else {
		h.timer.Reset(time.Until(at))
	}
}

func (c *conn) Write(b []byte) (int, error) {
	c.here.wrote.Add(1)
	if c.here.ended.Load() {
		return len(b), nil
	}
	late := c.here.net.late() + c.here.left()
	c.in.mu.Lock()
	closed := c.in.err
	c.in.mu.Unlock()
	if closed != nil && !errors.Is(closed, io.EOF) {
		return 0, closed
	}
	if c.there.replaced.Load() && c.reaches() {
		time.AfterFunc(late, func() { c.fail(errReset) })
		return len(b), nil
	}
	h := c.other.in
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return len(b), nil // it is on its way to no reader
	}
	at := time.Now().Add(late)
	if at.Before(h.last) {
		at = h.last
	}
	h.last = at
	h.chunks = append(h.chunks, chunk{append([]byte(nil), b...), at})
	switch {
	case len(h.chunks) > 1: // the reader waits for another one
	case late == 0:
		h.poke()
	default:
		h.wait(at)
	}
	return len(b), nil
}

// reaches reports whether data reaches the present host of the other end's address, and its answer
// comes back.
func (c *conn) reaches() bool {
	n := c.here.net
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.hosts[c.there.addr]
	return n.passes(c.here, now) && n.passes(now, c.here)
}

func (c *conn) Read(b []byte) (int, error) {
	n := c.here.net
	for {
		c.here.wait()
		n.mu.Lock()
		open := n.passes(c.there, c.here) || c.there.ended.Load() && !c.here.dead && !n.cut[[2]*host{c.there, c.here}]
		n.mu.Unlock()
		if m, err := c.in.read(b, open); m > 0 || err != nil {
			return m, err
		}
		select {
		case <-c.in.signal:
		case <-c.in.timer.C:
		}
	}
}

// read returns the data that has arrived. If there is none, the timer fires when there may be some.
func (h *half) read(b []byte, open bool) (m int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	switch {
	case h.now:
		return 0, h.err
	case !h.deadline.IsZero() && !now.Before(h.deadline):
		return 0, os.ErrDeadlineExceeded
	case !open:
		h.wait(time.Time{})
		return 0, nil
	}
	for len(h.chunks) > 0 && m < len(b) && !now.Before(h.chunks[0].at) {
		k := copy(b[m:], h.chunks[0].data)
		m += k
		if h.chunks[0].data = h.chunks[0].data[k:]; len(h.chunks[0].data) == 0 {
			h.chunks = h.chunks[1:]
		}
	}
	switch {
	case m > 0:
	case len(h.chunks) > 0:
		h.wait(h.chunks[0].at)
	case h.err != nil:
		err = h.err
	default:
		h.wait(time.Time{})
	}
	return m, err
}

// fail ends this end at once.
func (c *conn) fail(err error) {
	c.in.mu.Lock()
	if c.in.err == nil || !c.in.now {
		c.in.err, c.in.now = err, true
	}
	c.in.mu.Unlock()
	c.in.poke()
	c.here.net.mu.Lock()
	delete(c.here.conns, c)
	c.here.net.mu.Unlock()
}

func (c *conn) Close() error {
	c.fail(net.ErrClosed)
	h := c.other.in
	h.mu.Lock()
	if h.err == nil {
		h.err = io.EOF // after the chunks on their way
	}
	h.mu.Unlock()
	h.poke()
	return nil
}

// Prompt tells package peer that Write never waits.
func (c *conn) Prompt() {}

func (c *conn) LocalAddr() net.Addr  { return addr(c.here.addr) }
func (c *conn) RemoteAddr() net.Addr { return addr(c.there.addr) }

func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) } // writes do not wait

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.mu.Lock()
	c.in.deadline = t
	c.in.mu.Unlock()
	c.in.poke()
	return nil
}

func (c *conn) SetWriteDeadline(time.Time) error { return nil }
