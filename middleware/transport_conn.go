package middleware

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// h2Conn is a connection by HTTP/2. It carries one request at a time.
type h2Conn struct {
	*http.ClientConn
	t    *Transport
	to   endpoint
	busy bool // a request has it; guarded by t.mu
}

// conn returns a connection with room reserved for a request.
func (t *Transport) conn(ctx context.Context, to endpoint) (c *h2Conn, reused bool, err error) {
	for {
		c, err = t.take(to)
		if err != nil {
			return nil, false, err
		}
		if c == nil {
			break
		}
		if c.Reserve() == nil {
			t.begin(c)
			return c, true, nil
		}
		c.Close()
	}
	cc, err := t.dial(ctx, to)
	if errors.Is(err, errNoHTTP2) {
		t.mu.Lock()
		if t.old == nil {
			t.old = make(map[endpoint]time.Time)
		}
		t.old[to] = time.Now().Add(forgetOld)
		t.mu.Unlock()
	}
	if err != nil {
		return nil, false, err
	}
	c = &h2Conn{ClientConn: cc, t: t, to: to}
	if err := c.Reserve(); err != nil {
		c.Close()
		return nil, false, err
	}
	t.begin(c)
	c.SetStateHook(func(*http.ClientConn) { c.changed() })
	return c, false, nil
}

// begin notes that the connection has a request; its room is reserved.
func (t *Transport) begin(c *h2Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.busy = true
}

// take takes an idle connection, nil if there is none.
func (t *Transport) take(to endpoint) (*h2Conn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if until, ok := t.old[to]; ok {
		if time.Now().Before(until) {
			return nil, errNoHTTP2
		}
		delete(t.old, to)
	}
	all := t.idle[to]
	if len(all) == 0 {
		return nil, nil
	}
	c := all[len(all)-1]
	t.idle[to] = all[:len(all)-1]
	return c, nil
}

// changed is called when a request of the connection has ended, or the connection has.
func (c *h2Conn) changed() {
	if c.Err() == nil && c.InFlight() > 0 {
		return
	}
	t := c.t
	t.mu.Lock()
	closed := c.Err() != nil || c.busy && c.Available() == 0 // the server has said that it takes no more
	switch all := t.idle[c.to]; {
	case closed:
		t.forget(c)
	case !c.busy || c.InFlight() > 0:
	case len(all) >= t.maxIdle() || t.DisableKeepAlives:
		c.busy, closed = false, true
	default:
		if t.idle == nil {
			t.idle = make(map[endpoint][]*h2Conn)
		}
		c.busy = false
		t.idle[c.to] = append(all, c)
	}
	t.mu.Unlock()
	if closed {
		c.Close()
	}
}

// maxIdle returns how many idle connections a node may have.
func (t *Transport) maxIdle() int {
	if t.MaxIdleConnsPerHost == 0 { // as net/http has it
		return http.DefaultMaxIdleConnsPerHost
	}
	return t.MaxIdleConnsPerHost
}

// forget takes the connection out of the idle ones. t.mu is held.
func (t *Transport) forget(c *h2Conn) {
	all := t.idle[c.to]
	for i := range all {
		if all[i] == c {
			t.idle[c.to] = append(all[:i:i], all[i+1:]...)
			break
		}
	}
	if len(t.idle[c.to]) == 0 {
		delete(t.idle, c.to)
	}
}

type prefaceKey struct{}

const clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// prefaced is a connection after the client's preface and the beginning of the server's.
type prefaced struct {
	net.Conn
	skip int    // bytes of the preface that net/http has still to write
	head []byte // bytes that were read of the server's
}

// preface finds out whether a server accepts HTTP/2 before anything of a request is sent.
func preface(conn net.Conn, limit time.Duration) (net.Conn, error) {
	if limit > 0 {
		_ = conn.SetDeadline(time.Now().Add(limit))
	}
	_, err := io.WriteString(conn, clientPreface)
	head := make([]byte, 9) // of a frame
	var n int
	if err == nil {
		n, err = io.ReadFull(conn, head)
	}
	const settings = 4
	switch {
	case n >= 4 && head[3] != settings, n == 0 && errors.Is(err, io.EOF):
		err = errNoHTTP2
	case err == nil:
		_ = conn.SetDeadline(time.Time{})
		return &prefaced{conn, len(clientPreface), head}, nil
	}
	conn.Close()
	return nil, err
}

func (p *prefaced) Write(b []byte) (int, error) {
	n := min(p.skip, len(b))
	if p.skip -= n; n == len(b) {
		return n, nil
	}
	m, err := p.Conn.Write(b[n:])
	return n + m, err
}

func (p *prefaced) Read(b []byte) (int, error) {
	if len(p.head) > 0 {
		n := copy(b, p.head)
		p.head = p.head[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}
