package redistest

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Proxy stands between clients and a server and can lose a reply: the request is executed, its
// client never hears of it, and the connection breaks. It can break all connections, be pointed at
// another server, and be far away.
type Proxy struct {
	Addr string
	Lost atomic.Int64 // replies lost so far
	late atomic.Int64 // how late a piece is, in each direction; see Delay

	mu    sync.Mutex // protects the fields below
	to    string     // empty: nowhere
	lose  []byte     // part of a request, in lower case; nil: lose nothing
	conns map[net.Conn]bool
	ended bool

	work sync.WaitGroup
}

// StartProxy starts a proxy to the address and stops it when the test ends.
func StartProxy(t testing.TB, to string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), to: to, conns: make(map[net.Conn]bool)}
	p.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.serve(c)
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		p.ended = true
		p.mu.Unlock()
		p.Break()
		p.work.Wait()
	})
	return p
}

// Lose makes the proxy lose the reply to the next request that contains text, whatever its case.
func (p *Proxy) Lose(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = bytes.ToLower([]byte(text))
}

// Point breaks all connections and sends those that are made from now on to another address, or
// nowhere if it is empty.
func (p *Proxy) Point(to string) {
	p.mu.Lock()
	p.to = to
	p.mu.Unlock()
	p.Break()
}

// Break closes all connections.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	to := p.to
	p.mu.Unlock()
	server, err := net.Dial("tcp", to)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.to != to {
		_, _ = client.Close(), server.Close()
		return
	}
	p.conns[client], p.conns[server] = true, true
	var doomed atomic.Bool // the next reply is to be lost
	p.work.Go(func() { p.pass(server, client, func(request []byte) bool { p.judge(request, &doomed); return true }) })
	p.work.Go(func() { p.pass(client, server, func([]byte) bool { return !doomed.Load() }) })
}

// judge looks for the request whose reply is to be lost. A request of a test is short: it comes in
// one piece.
func (p *Proxy) judge(request []byte, doomed *atomic.Bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lose != nil && bytes.Contains(bytes.ToLower(request), p.lose) {
		p.lose = nil
		p.Lost.Add(1)
		doomed.Store(true)
	}
}

// pass copies until ok says no or a side ends, and then closes both.
func (p *Proxy) pass(to, from net.Conn, ok func([]byte) bool) {
	buf := make([]byte, 64<<10)
	write := func(b []byte) { _, _ = to.Write(b) } // an error ends the other direction
	if late := time.Duration(p.late.Load()); late > 0 {
		var end func()
		write, end = p.later(to, late)
		defer end()
	}
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !ok(buf[:n]) {
				break
			}
			write(buf[:n])
		}
		if err != nil {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range []net.Conn{to, from} {
		_ = c.Close()
		delete(p.conns, c)
	}
}
