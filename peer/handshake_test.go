package peer

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/takes"
)

// fake is a transport without goroutines, for tests that hold the socket themselves.
func fake(tb testing.TB, opts Options) *Transport {
	opts.Handler = handler{}
	opts, err := opts.validate()
	if err != nil {
		tb.Fatal(err)
	}
	t := &Transport{
		opts: opts, log: newLimitedLog(opts.Logger), peers: map[string]*peer{},
		removed: map[string]struct{}{}, greeting: map[net.Conn]struct{}{},
	}
	t.client, t.server = configs(opts.TLS)
	t.streams.Store(&map[string]*Stream{})
	return t
}

// dialAs dials t as that node and returns the connection after the handshake.
func dialAs(tb testing.TB, t *Transport, opts Options) (net.Conn, error) {
	tb.Helper()
	c := dialRaw(tb, t)
	f := fake(tb, opts)
	_, _, err := f.conversation(c, t.opts.Node).greet()
	return c, err
}

func dialRaw(tb testing.TB, t *Transport) net.Conn {
	tb.Helper()
	c, err := net.Dial("tcp", t.Addr())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// Both dial at once: one stream each side, and the same one, that stays.
func TestBothDial(t *testing.T) {
	takes.Seconds(t)
	for i := range 200 {
		var evs [2]*events
		var nodes [2]*Transport
		for j, name := range []string{"a", "b"} {
			evs[j] = newEvents(t)
			nodes[j] = start(t, Options{Node: name, Handler: evs[j], Retry: time.Millisecond})
		}
		var wg sync.WaitGroup
		for j := range nodes {
			wg.Go(func() {
				nodes[j].SetPeers(map[string]string{nodes[1-j].opts.Node: nodes[1-j].Addr()})
			})
		}
		wg.Wait()
		a, b := await(t, evs[0].ups), await(t, evs[1].ups)
		if a.id != b.id || a.sock.LocalAddr().String() != b.sock.RemoteAddr().String() {
			t.Fatalf("%d: two streams: %d and %d", i, a.id, b.id)
		}
		eventually(t, "the other connection ends", func() bool {
			n := 0
			for _, node := range nodes {
				node.mu.Lock()
				n += len(node.greeting)
				node.mu.Unlock()
			}
			return n == 0
		})
		for j, node := range nodes {
			if len(evs[j].ups) != 0 || len(evs[j].downs) != 0 {
				t.Fatalf("%d: %s: %d more Up, %d Down: %v", i, node.opts.Node, len(evs[j].ups), len(evs[j].downs), <-evs[j].downs)
			}
			if node.gen != 1 {
				t.Fatalf("%d: %d streams were made", i, node.gen)
			}
		}
		nodes[0].Close()
		nodes[1].Close()
	}
}

// Different settings are refused, with a reason in the logs of both sides.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name              string
		a, b              Options
		dialler, listener string
		dialAs            string
	}{
		{name: "namespace", a: Options{Namespace: "x"}, b: Options{Namespace: "y"}, dialler: `namespaces differ: \"x\" dialled \"y\"`, listener: "namespaces differ"},
		{name: "version", a: Options{Version: 1}, b: Options{Version: 2}, dialler: "versions differ: 0x1 dialled 0x2", listener: "versions differ"},
		{name: "frames", a: Options{Frames: Versions{1, 2}}, b: Options{Frames: Versions{3, 4}},
			dialler: "no version of frames in common: one that speaks 1 to 2 dialled one that speaks 3 to 4", listener: "no version of frames"},
		{name: "name", dialAs: "c", dialler: `the node is \"b\", not \"c\"`, listener: `the node is "b", not "c"`},
		{name: "self", b: Options{Node: "a"}, dialAs: "c", dialler: `both sides are the node \"a\"`, listener: "both sides are the node"},
	} {
		t.Run(c.name, func(t *testing.T) {
			la, lb := newLogLines(), newLogLines()
			c.a.Node, c.a.Logger = "a", newLogger(la)
			c.b.Logger = newLogger(lb)
			if c.b.Node == "" {
				c.b.Node = "b"
			}
			ea, eb := newEvents(t), newEvents(t)
			c.a.Handler, c.b.Handler = ea, eb
			a, b := start(t, c.a), start(t, c.b)
			to := "b"
			if c.dialAs != "" {
				to = c.dialAs
			}
			a.SetPeers(map[string]string{to: b.Addr()})
			la.await(t, c.dialler)
			lb.await(t, c.listener)
			a.Close()
			b.Close()
			if len(ea.ups)+len(eb.ups) != 0 {
				t.Error("a stream came up")
			}
			if n := len(la.c) + len(lb.c); n != 0 {
				t.Errorf("%d more lines", n)
			}
		})
	}
}

// TestFrames_NewestInCommon: both sides of a stream have the newest version that both speak.
func TestFrames_NewestInCommon(t *testing.T) {
	for _, c := range []struct {
		a, b Versions
		want uint16
	}{
		{want: 0},
		{Versions{1, 1}, Versions{1, 1}, 1},
		{Versions{1, 2}, Versions{1, 1}, 1},
		{Versions{1, 2}, Versions{2, 3}, 2},
		{Versions{0, 9}, Versions{2, 3}, 3},
	} {
		for _, reversed := range []bool{false, true} {
			if reversed {
				c.a, c.b = c.b, c.a
			}
			ea, eb := newEvents(t), newEvents(t)
			a, b := start(t, Options{Node: "a", Frames: c.a, Handler: ea}), start(t, Options{Node: "b", Frames: c.b, Handler: eb})
			a.SetPeers(map[string]string{"b": b.Addr()})
			if x, y := await(t, ea.ups).Frames(), await(t, eb.ups).Frames(); x != c.want || y != c.want {
				t.Errorf("%v and %v: %d and %d, want %d", c.a, c.b, x, y, c.want)
			}
			a.Close()
			b.Close()
		}
	}
}

// TestHello_MoreIsSkipped: a later version may say more in its hello.
func TestHello_MoreIsSkipped(t *testing.T) {
	h, got := hello{node: "a", to: "b", namespace: "n", version: 7, frames: Versions{3, 4}}, hello{}
	if err := got.decode(append(h.encode(), "and more"...)); err != nil || got != h {
		t.Errorf("%+v, %v", got, err)
	}
	if err := got.decode(h.encode()[:len(h.encode())-1]); err == nil {
		t.Error("a hello that is too short is taken")
	}
}

// A node dials itself under another name.
func TestSelf(t *testing.T) {
	lines := newLogLines()
	a := start(t, Options{Node: "a", Logger: newLogger(lines)})
	a.SetPeers(map[string]string{"a": a.Addr(), "other": a.Addr()})
	lines.await(t, "both sides are the node")
}

// Strangers of all sorts get an answer at most, and the log says their sort.
func TestGarbage(t *testing.T) {
	for text, line := range map[string]string{
		"GET / HTTP/1.1\r\n\r\n":                  "speaks HTTP",
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc":    "uses TLS",
		"PING\r\n\r\n":                            "not a peer",
		"hldfst\x00\x01rest":                      "protocol version 1",
		"hldfst\x00\x03\x02\x00\x00":              "in the place of message 1",
		"hldfst\x00\x03\x01\xff\xff":              "in the place of message 1",
		"hldfst\x00\x03\x01\x00\x04\x01a\x00\x00": "malformed hello",
	} {
		lines := newLogLines()
		a := start(t, Options{Node: "a", Logger: newLogger(lines)})
		c := dialRaw(t, a)
		io.WriteString(c, text)
		answer, _ := io.ReadAll(c)
		c.Close()
		if len(answer) > preambleSize+3+1+maxReason || !bytes.HasPrefix(answer, []byte(magic)) {
			t.Errorf("%q was answered with %q", text, answer)
		}
		lines.await(t, line)
		a.Close()
	}
}

// A client that connects and says nothing, such as a health check, is no news.
func TestSilence(t *testing.T) {
	t.Parallel()
	for name, secret := range map[string]*tls.Config{"plain": nil, "TLS": newAuthority(t).config(t)} {
		t.Run(name, func(t *testing.T) {
			lines := newLogLines()
			a := start(t, Options{Node: "a", TLS: secret, Logger: newLogger(lines)})
			for range 20 {
				c := dialRaw(t, a)
				c.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, c) // until it has been closed
				c.Close()
			}
			for range 10 {
				c := dialRaw(t, a)
				c.(*net.TCPConn).SetLinger(0) // it ends with a reset
				c.Close()
			}
			c := dialRaw(t, a)
			io.WriteString(c, "garbage, of which there is enough to see what it is")
			if line := await(t, lines.c); !strings.Contains(line, "not a peer") && !strings.Contains(line, "uses TLS") {
				t.Error(line)
			}
			c.Close()
			eventually(t, "all have ended", func() bool {
				a.mu.Lock()
				defer a.mu.Unlock()
				return len(a.from) == 0
			})
			if len(lines.c) > 0 {
				t.Error(<-lines.c)
			}
		})
	}
}

// A refusal's text is bounded and quoted.
func TestRefusalText(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		c.Write(appendMessage(preamble(), msgRefuse, []byte("\x01evil\n\x1b[31m"+strings.Repeat("x", 400))))
		io.Copy(io.Discard, c)
	}()
	lines := newLogLines()
	a := start(t, Options{Node: "a", Logger: newLogger(lines)})
	a.SetPeers(map[string]string{"b": l.Addr().String()})
	line := await(t, lines.c)
	if !strings.Contains(line, `evil\n\x1b[31m`) || len(line) > 500 {
		t.Error(line)
	}
}

// Random bytes, also after a good start, against a listener that goes on serving. Without TLS some
// of them are a node's.
func TestGarbageFuzz(t *testing.T) {
	e := newEvents(t)
	a := start(t, Options{Node: "a", Handler: e})
	h := hello{node: "c", to: "a"}
	good := appendMessage(preamble(), msgHello, h.encode())
	good = appendMessage(good, msgClaim, make([]byte, claimSize))
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(w)))
			for range 40 {
				c := dialRaw(t, a)
				b := bytes.Clone(good[:r.IntN(len(good)+1)])
				for range r.IntN(4) {
					if len(b) > 0 {
						b[r.IntN(len(b))] = byte(r.Uint32())
					}
				}
				for range r.IntN(100) {
					b = append(b, byte(r.Uint32()))
				}
				c.Write(b)
				c.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, c)
				c.Close()
			}
		})
	}
	wg.Wait()
	b := start(t, Options{Node: "b"})
	b.SetPeers(map[string]string{"a": a.Addr()})
	eventually(t, "a stream", func() bool { return a.Stream("b") != nil })
}

// After the handshake garbage closes the stream.
func TestGarbageInStream(t *testing.T) {
	for name, text := range map[string]string{
		"kind":   "\x00\x03\xee\x00\x00",
		"length": "\xff\xff",
		"frame":  "\x00\x03\x01\x00\x02",
	} {
		e := newEvents(t)
		a := start(t, Options{Node: "a", Handler: e})
		c, err := dialAs(t, a, Options{Node: "b"})
		if err != nil {
			t.Fatal(err)
		}
		await(t, e.ups)
		io.WriteString(c, text)
		if err := await(t, e.downs); !strings.Contains(err.Error(), ErrProtocol.Error()) {
			t.Error(name, err)
		}
	}
}

// Connections that say nothing are ended, no more than maxFrom of an address are kept, and no more
// than maxGreeting of all.
func TestUnauthenticated(t *testing.T) {
	takes.Seconds(t)
	lines := newLogLines()
	a := start(t, Options{Node: "a", Logger: newLogger(lines), Listen: "0.0.0.0:0"})
	_, port, _ := net.SplitHostPort(a.Addr())
	var conns []net.Conn
	knock := func(host string) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
		c, err := d.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range maxFrom + 8 {
		knock("127.0.0.2")
	}
	lines.await(t, "from one address")
	b := start(t, Options{Node: "b"}) // from another one
	b.SetPeers(map[string]string{"a": net.JoinHostPort("127.0.0.1", port)})
	eventually(t, "a stream", func() bool { return a.Stream("b") != nil })
	for i := range maxGreeting + 8 {
		knock(fmt.Sprintf("127.0.1.%d", 1+i/2))
	}
	lines.await(t, "too many connections at once that have not authenticated")
	begin := time.Now()
	for _, c := range conns {
		io.Copy(io.Discard, c)
	}
	if d := time.Since(begin); d > 3*greetingLimit {
		t.Errorf("ended after %v", d)
	}
	c := start(t, Options{Node: "c"})
	c.SetPeers(map[string]string{"a": net.JoinHostPort("127.0.0.1", port)})
	eventually(t, "a stream", func() bool { return a.Stream("c") != nil })
	eventually(t, "no address is remembered", func() bool { // the last one is forgotten after its stream is there
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.from) == 0
	})
}

// A node that lost its stream says so and gets another at once; one that did not is
// refused, and the old stream lives on.
func TestClaims(t *testing.T) {
	e := newEvents(t)
	a := start(t, Options{Node: "a", Handler: e})
	dial := func(f *Transport) (*Stream, error) {
		s, _, err := f.conversation(dialRaw(t, a), "a").greet()
		return s, err
	}
	b := fake(t, Options{Node: "b"})
	first, err := dial(b)
	if err != nil {
		t.Fatal(err)
	}
	await(t, e.ups)
	if _, err := dial(b); err == nil || !strings.Contains(err.Error(), "already") {
		t.Fatal(err) // it still has the first
	}
	if _, err := dial(fake(t, Options{Node: "b"})); err == nil || !strings.Contains(err.Error(), "already") {
		t.Fatal(err) // knows nothing: the go may be on its way
	}
	if len(e.downs) != 0 {
		t.Fatal("the first is down")
	}
	first.closed.Store(true) // lost, but a cannot know
	second, err := dial(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := await(t, e.downs); !strings.Contains(err.Error(), ErrReplaced.Error()) {
		t.Error(err)
	}
	if s := await(t, e.ups); s.id != second.id || second.id <= first.id {
		t.Errorf("%d and %d after %d", s.id, second.id, first.id)
	}
}

// A follower passes over a go that comes late, and takes down its stream for a new one.
func TestFollow(t *testing.T) {
	b := fake(t, Options{Node: "b"})
	var ss []*Stream
	for _, c := range []struct {
		id uint64
		ok bool
	}{{0, false}, {5, true}, {4, false}, {5, false}, {6, true}} {
		x, y := net.Pipe()
		defer x.Close()
		defer y.Close()
		s, prev, err := b.follow("a", c.id, &conversation{sock: x})
		if (err == nil) != c.ok {
			t.Fatalf("%d: %v", c.id, err)
		}
		if c.id == 0 && len(b.peers) > 0 {
			t.Error("a node that is refused counts as a stranger for good")
		}
		if c.ok {
			if len(ss) > 0 && (prev != ss[0] || !prev.closed.Load()) {
				t.Error("the older one lives")
			}
			ss = append(ss, s)
		}
	}
	if got := b.claim("a"); got != (claim{seen: 6, live: 6}) {
		t.Error(got)
	}
}

func TestValidate(t *testing.T) {
	long := strings.Repeat("x", MaxName+1)
	for i, o := range []Options{
		{}, {Node: long}, {Node: "a", Namespace: long}, {Node: "a", Keepalive: 1}, {Node: "a", Retry: -1},
		{Node: "a", MaxQueue: 1}, {Node: "a", Listen: "nowhere"},
	} {
		o.Handler = handler{}
		if tr, err := Start(o); err == nil {
			tr.Close()
			t.Errorf("%d: accepted", i)
		}
	}
	if tr, err := Start(Options{Node: "a"}); err == nil {
		tr.Close()
		t.Error("no handler: accepted")
	}
}

// A decoded hello is written as the same bytes, but for the additions of a later version.
func FuzzHello(f *testing.F) {
	h := hello{node: "a", to: "b", namespace: "n", version: 7}
	f.Add(h.encode())
	f.Add(make([]byte, 43))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h hello
		if h.decode(b) == nil && !bytes.HasPrefix(b, h.encode()) {
			t.Fatalf("% x became % x", b, h.encode())
		}
	})
}
