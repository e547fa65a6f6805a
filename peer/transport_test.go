package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	watching "github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// A removed node is closed and refused until it is named again, though it goes on dialling.
func TestRemoval(t *testing.T) {
	ea, eb := newEvents(t), newEvents(t)
	lines := newLogLines()
	a := start(t, Options{Node: "a", Handler: ea})
	b := start(t, Options{Node: "b", Handler: eb, Retry: time.Millisecond, Logger: newLogger(lines)})
	peers(a, b)
	await(t, ea.ups)
	await(t, eb.ups)
	a.SetPeers(map[string]string{"a": a.Addr()})
	if err := await(t, ea.downs); !errors.Is(err, ErrRemoved) {
		t.Error(err)
	}
	await(t, eb.downs)
	for range 3 {
		if _, err := dialAs(t, a, Options{Node: "b"}); err == nil {
			t.Error("the removed node got a stream")
		} else if r, ok := errors.AsType[*refusal](err); !ok || r.code != codeGone {
			t.Error(err)
		}
	}
	if a.Stream("b") != nil || len(ea.ups) != 0 {
		t.Error("it is back")
	}
	peers(a, b)
	await(t, ea.ups)
	await(t, eb.ups)
	if len(a.peers) != 1 || len(a.removed) != 0 {
		t.Error(a.peers, a.removed)
	}
	if len(lines.c) != 0 {
		t.Error("a removal is no news:", <-lines.c)
	}
}

// A node that SetPeers has not named may dial, and stays when others are named; the number
// of such nodes is bounded, and they leave nothing behind.
func TestStrangers(t *testing.T) {
	e := newEvents(t)
	a := start(t, Options{Node: "a", Handler: e, Keepalive: time.Minute}) // they say nothing, and so many handshakes may take seconds
	a.SetPeers(map[string]string{"x": "127.0.0.1:1"})
	var conns []net.Conn
	for i := range maxStrangers {
		c, err := dialAs(t, a, Options{Node: fmt.Sprint("b", i)})
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		await(t, e.ups)
	}
	a.SetPeers(nil)
	if len(e.downs) != 0 {
		t.Error("strangers were closed")
	}
	if _, err := dialAs(t, a, Options{Node: "c"}); err == nil {
		t.Error("one too many")
	}
	for _, c := range conns {
		c.Close()
		await(t, e.downs)
	}
	eventually(t, "all forgotten", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.peers) == 0
	})
}

// A process starts again at the same address under another name.
func TestRestart(t *testing.T) {
	e := newEvents(t)
	a := start(t, Options{Node: "a", Handler: e})
	b := start(t, Options{Node: "b1"})
	addr := b.Addr()
	a.SetPeers(map[string]string{"b1": addr})
	if s := await(t, e.ups); s.Node() != "b1" {
		t.Fatal(s)
	}
	b.Close()
	await(t, e.downs)
	start(t, Options{Node: "b2", Listen: addr})
	a.SetPeers(map[string]string{"b2": addr})
	if s := await(t, e.ups); s.Node() != "b2" {
		t.Fatal(s)
	}
}

// An address that changes is dialled at once, though the pause has become long.
func TestAddressChange(t *testing.T) {
	refused := make(chan struct{}, 1)
	a := start(t, Options{Node: "a", Retry: time.Minute, Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			refused <- struct{}{} // the pause begins
		}
		return c, err
	}})
	b := start(t, Options{Node: "b"})
	a.SetPeers(map[string]string{"b": "127.0.0.1:1"})
	await(t, refused)
	a.SetPeers(map[string]string{"b": b.Addr()})
	eventually(t, "a stream", func() bool { return a.Stream("b") != nil })
}

// A stream without traffic lives, and one that the other side has forgotten is noticed:
// here the peer's socket is open, but nothing comes.
func TestKeepalive(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	const k = 400 * time.Millisecond // a busy machine may let a node say nothing for 2.5 times a shorter one
	ea, eb := newEvents(t), newEvents(t)
	a := start(t, Options{Node: "a", Handler: ea, Keepalive: k})
	b := start(t, Options{Node: "b", Handler: eb, Keepalive: k})
	peers(a, b)
	await(t, ea.ups)
	await(t, eb.ups)
	begin := time.Now()
	if _, err := dialAs(t, a, Options{Node: "c"}); err != nil {
		t.Fatal(err)
	}
	if s := await(t, ea.ups); s.Node() != "c" {
		t.Fatal(s)
	}
	if err := await(t, ea.downs); !errors.Is(err, ErrSilent) {
		t.Error(err)
	}
	if d := time.Since(begin); d < 2*k || d > 10*k {
		t.Errorf("noticed after %v", d)
	}
	if len(ea.downs)+len(eb.downs) != 0 {
		t.Error("the quiet stream is down")
	}
}

// A transport whose peers have different keepalives sends by the shortest, and waits by the
// longest.
func TestSetKeepalive(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	const short, long = 100 * time.Millisecond, 800 * time.Millisecond
	e, up := newEvents(t), make(chan *Stream, 1)
	a := start(t, Options{Node: "a", Handler: e, Keepalive: short})
	b := start(t, Options{Node: "b", Keepalive: long, Handler: handler{up: func(s *Stream) { up <- s }}})
	a.SetKeepalive(short, short)
	a.SetKeepalive(short, long)
	peers(a, b)
	s, other := await(t, e.ups), await(t, up)
	eventually(t, "keepalives", func() bool { return len(e.downs) > 0 || s.reads.Load() > 3 })
	if sent, heard := other.reads.Load(), s.reads.Load(); sent < 2*heard {
		t.Errorf("it has sent %d keepalives, and heard %d", sent, heard)
	}
	if len(e.downs) > 0 {
		t.Error(<-e.downs)
	}
	a.SetKeepalive(short, short)
	if err := await(t, e.downs); !errors.Is(err, ErrSilent) {
		t.Error(err)
	}
}

// After a cut the follower never saw go: it is refused only until the keepalive has ended
// the half-open stream.
func TestHalfOpen(t *testing.T) {
	const k = 40 * time.Millisecond
	e := newEvents(t)
	a := start(t, Options{Node: "a", Handler: e, Keepalive: k})
	if _, err := dialAs(t, a, Options{Node: "b"}); err != nil {
		t.Fatal(err)
	}
	await(t, e.ups)
	b := start(t, Options{Node: "b", Keepalive: k})
	b.SetPeers(map[string]string{"a": a.Addr()})
	if err := await(t, e.downs); !errors.Is(err, ErrSilent) {
		t.Error(err)
	}
	await(t, e.ups)
}

// The frames of Up come whole, however many they are, and also where the other node reads them
// slowly.
func TestUp_SaysAll(t *testing.T) {
	const frames = 5000 // of a thousand bytes and more
	got, reads := make(chan int, 1), make(chan struct{})
	n := 0
	b := start(t, Options{Node: "b", MaxQueue: 64 << 10, Handler: handler{frame: func(_ *Stream, f *Frame) {
		<-reads
		if n++; f.Kind == Ping {
			got <- n - 1
		}
	}}})
	said := make(chan error, 1)
	a := start(t, Options{Node: "a", MaxQueue: 64 << 10, Handler: handler{up: func(s *Stream) {
		var err error
		for range frames {
			if err == nil {
				err = s.Queue(&Frame{Kind: Grant, Key: make([]byte, MaxKey)})
			}
		}
		if err == nil {
			err = s.Send(&Frame{Kind: Ping})
		}
		select {
		case said <- err:
		default: // the stream ended, and this is another one
		}
	}}})
	peers(a, b)
	err := await(t, said)
	close(reads)
	if err != nil {
		t.Fatal(err)
	}
	if n := await(t, got); n != frames {
		t.Errorf("%d frames of %d", n, frames)
	}
}

// A peer that says it is alive but reads nothing: the bytes waiting for it are bounded, Send does
// not wait, and the stream is closed.
func TestNeverReads(t *testing.T) {
	e := newEvents(t)
	const limit = 1 << 20
	a := start(t, Options{Node: "a", Handler: e, MaxQueue: limit})
	if _, err := dialAs(t, a, Options{Node: "b"}); err != nil {
		t.Fatal(err)
	}
	s := await(t, e.ups)
	f := &Frame{Kind: Grant, Key: make([]byte, MaxKey)}
	var err error
	var slowest time.Duration
	for sent := 0; err == nil; sent++ {
		begin := time.Now()
		err = s.Send(f)
		slowest = max(slowest, time.Since(begin))
		if q := s.queued(); q > limit+MaxFrame {
			t.Fatalf("%d bytes wait", q)
		}
		if sent > 100_000 {
			t.Fatal("never closed")
		}
	}
	if !errors.Is(err, ErrQueueFull) || !errors.Is(await(t, e.downs), ErrQueueFull) {
		t.Error(err)
	}
	if slowest > time.Second {
		t.Errorf("a Send took %v", slowest)
	}
}

// The same, but only a little waits: nothing is taken for too long.
func TestStalls(t *testing.T) {
	t.Parallel()
	const k = 400 * time.Millisecond
	e := newEvents(t)
	a := start(t, Options{Node: "a", Handler: e, Keepalive: k})
	c, err := dialAs(t, a, Options{Node: "b"})
	if err != nil {
		t.Fatal(err)
	}
	c.(*net.TCPConn).SetReadBuffer(4096)
	// Alive, to all appearances: also while the buffers are filled, and on a machine that has other
	// things to do.
	var appears sync.WaitGroup
	appears.Go(func() {
		alive := time.NewTicker(k / 40)
		defer alive.Stop()
		for range alive.C {
			if _, err := c.Write([]byte{0, 0}); err != nil {
				return
			}
		}
	})
	defer appears.Wait()
	defer c.Close()
	s := await(t, e.ups)
	f := &Frame{Kind: Grant, Key: make([]byte, MaxKey)}
	// The system's buffers may grow after they were full: then there is more to send.
	full := time.NewTicker(k / 40)
	defer full.Stop()
	for giveUp := time.After(20 * time.Second); ; {
		for n := 0; n < 1_000 && s.queued() < 100<<10 && s.Send(f) == nil; n++ {
			runtime.Gosched()
		}
		select {
		case err := <-e.downs:
			if !errors.Is(err, ErrStalled) {
				t.Error(err)
			}
			return
		case <-giveUp:
			t.Fatal("nothing came for 20 s")
		case <-full.C:
		}
	}
}

// Both sides send more than the other can answer, and both stop reading: the pauses end,
// and nothing hangs or is closed.
func TestMutualFlood(t *testing.T) {
	takes.Seconds(t)
	const frames = 8_000
	var got atomic.Int64
	done := make(chan struct{})
	h := func() *events {
		e := newEvents(t)
		e.frame = func(s *Stream, f *Frame) {
			if f.Kind == Request {
				f.Kind = Grant
				s.Send(f)
			} else if got.Add(1) == 2*frames {
				close(done)
			}
		}
		return e
	}
	ea, eb := h(), h()
	a := start(t, Options{Node: "a", Handler: ea, MaxQueue: 64 << 20})
	b := start(t, Options{Node: "b", Handler: eb, MaxQueue: 64 << 20})
	peers(a, b)
	for _, e := range []*events{ea, eb} {
		s := await(t, e.ups)
		go func() {
			f := &Frame{Kind: Request, Key: make([]byte, MaxKey)}
			for range frames {
				if err := s.Send(f); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	await(t, done)
	if len(ea.downs)+len(eb.downs) != 0 {
		t.Error(await(t, ea.downs))
	}
}

// A peer that asks and does not read the answers is not read any more.
func TestBackPressure(t *testing.T) {
	var answered atomic.Int64
	e := newEvents(t)
	e.frame = func(s *Stream, f *Frame) {
		for range 20 {
			s.Send(f)
		}
		answered.Add(20 * MaxKey)
	}
	a := start(t, Options{Node: "a", Handler: e, Keepalive: 10 * time.Second})
	c, err := dialAs(t, a, Options{Node: "b"})
	if err != nil {
		t.Fatal(err)
	}
	s := await(t, e.ups)
	b := AppendFrame(nil, &Frame{Kind: Request, Key: make([]byte, MaxKey)})
	go func() {
		for {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}()
	eventually(t, "a queue", func() bool { return s.queued() > softQueue })
	// For a tenth of the time that a pause lasts here.
	watching.Throughout(t, 100*time.Millisecond, "the queue does not grow on", func() bool { return s.queued() <= softQueue+4<<20 })
	before := answered.Load()
	go io.Copy(io.Discard, c)
	eventually(t, "more", func() bool { return answered.Load() > before+8<<20 })
	if len(e.downs) != 0 {
		t.Error(<-e.downs)
	}
}
