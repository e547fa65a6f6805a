package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// door is a listener without a network: Accept takes out the connections that knock puts in.
type door struct {
	conns chan net.Conn
	ended chan struct{}
	once  sync.Once
}

func newDoor() *door { return &door{conns: make(chan net.Conn), ended: make(chan struct{})} }

func (d *door) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1} }

func (d *door) Close() error {
	d.once.Do(func() { close(d.ended) })
	return nil
}

func (d *door) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.ended:
		return nil, net.ErrClosed
	}
}

// visitor is the listener's end of a connection from an address.
type visitor struct {
	net.Conn
	from net.Addr
}

func (v visitor) RemoteAddr() net.Addr { return v.from }

// knock connects from an address and says nothing. open counts the connections that are not closed.
func (d *door) knock(from string, open *atomic.Int64) {
	there, here := net.Pipe()
	d.conns <- visitor{here, &net.TCPAddr{IP: net.ParseIP(from), Port: 9}}
	open.Add(1)
	go func() {
		_, _ = io.Copy(io.Discard, there)
		open.Add(-1)
		_ = there.Close()
	}()
}

// An address has 16 handshakes at a time, an IPv6 network of 64 bits is one address, all have 64.
// They end after their limit, and others get in.
func TestHandshakesAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor()
		a, err := Start(Options{Node: "a", Listener: d, Handler: handler{}})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		var open atomic.Int64
		for round := range 2 {
			for _, part := range []struct {
				from string
				want int64 // open ones of all parts
			}{
				{"192.0.2.1", 16}, {"2001:db8::%x", 32}, {"2001:db8:0:1::%x", 48},
				{"198.51.100.%d", 64}, {"203.0.113.%d", 64},
			} {
				for i := range 40 {
					from := part.from
					if strings.Contains(from, "%") {
						from = fmt.Sprintf(from, i+1)
					}
					d.knock(from, &open)
				}
				synctest.Wait()
				if n := open.Load(); n != part.want {
					t.Errorf("round %d: %d connections are open after those of %s, want %d", round, n, part.from, part.want)
				}
			}
			time.Sleep(greetingLimit + time.Second)
			synctest.Wait()
			if n := open.Load(); n != 0 {
				t.Errorf("round %d: %d connections are open after %v", round, n, greetingLimit)
			}
		}
	})
}

// The log tells of a stranger at one address, or in one IPv6 network, once a minute, whatever
// numbers it sends. It tells of strangers at many addresses 32 times. Lines about nodes go on.
func TestStrangersDoNotSilenceTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, lines := newDoor(), newLogLines()
		refusing := func(context.Context, string) (net.Conn, error) {
			here, there := net.Pipe()
			go func() {
				_, _ = io.Copy(io.Discard, there)
				_ = there.Close()
			}()
			go func() { _, _ = there.Write(appendMessage(preamble(), msgRefuse, []byte{codeSettings, 'x'})) }()
			return here, nil
		}
		a, err := Start(Options{Node: "a", Listener: d, Handler: handler{}, Logger: newLogger(lines), Dial: refusing})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		stranger := func(from string, n int) {
			there, here := net.Pipe()
			d.conns <- visitor{here, &net.TCPAddr{IP: net.ParseIP(from), Port: 9}}
			go func() { _, _ = there.Write(appendMessage(preamble(), byte(100+n), make([]byte, n))) }()
			_, _ = io.Copy(io.Discard, there)
			_ = there.Close()
			synctest.Wait()
		}
		told := func(want int) {
			t.Helper()
			if n := len(lines.c); n != want {
				t.Errorf("%d lines, want %d", n, want)
			}
			for len(lines.c) > 0 {
				<-lines.c
			}
		}
		for i := range 40 {
			stranger("192.0.2.1", i)
		}
		told(1)
		for i := range 40 {
			stranger(fmt.Sprintf("2001:db8::%x", i), i)
		}
		told(1)
		for i := range 40 {
			stranger(fmt.Sprintf("198.51.100.%d", i), i)
		}
		told(logsPerMinute - 2)
		a.SetPeers(map[string]string{"b": "192.0.2.2:1"})
		synctest.Wait()
		told(1)
		a.SetPeers(nil) // else it is tried again, and told of
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for len(lines.c) > 0 {
			<-lines.c
		}
		stranger("192.0.2.1", 1)
		told(1)
	})
}

// A node that has proved its name is told of whatever strangers do, by its name.
func TestTheLogTellsOfNodesBesideStrangers(t *testing.T) {
	ca := newAuthority(t)
	verify := func(string, *tls.ConnectionState) error { return nil }
	lines := newLogLines()
	a := start(t, Options{Node: "a", Namespace: "one", TLS: ca.config(t), Verify: verify, Logger: newLogger(lines)})
	for i := range 2 * logsPerMinute {
		a.unknown.fresh(fmt.Sprint(i))
	}
	if _, err := dialAs(t, a, Options{Node: "b", Namespace: "other", TLS: ca.config(t), Verify: verify}); err == nil {
		t.Fatal("it has a stream")
	}
	lines.await(t, "namespaces differ")
}

// A node that is told of many others dials 16 at a time, and comes to all of them.
func TestDialsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const nodes = 200
		var now, most atomic.Int64
		var mu sync.Mutex
		dialled := make(map[string]bool)
		dial := func(ctx context.Context, addr string) (net.Conn, error) {
			n := now.Add(1)
			defer now.Add(-1)
			mu.Lock()
			dialled[addr] = true
			most.Store(max(most.Load(), n))
			mu.Unlock()
			<-ctx.Done() // an address where nothing answers
			return nil, ctx.Err()
		}
		a, err := Start(Options{Node: "a", Listener: newDoor(), Handler: handler{}, Dial: dial, Retry: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		peers := make(map[string]string)
		for i := range nodes {
			peers[fmt.Sprint("n", i)] = fmt.Sprintf("192.0.2.%d:1", i)
		}
		a.SetPeers(peers)
		synctest.Wait()
		if n := now.Load(); n != 16 {
			t.Errorf("%d dials at a time, want 16", n)
		}
		time.Sleep((nodes/16 + 1) * greetingLimit)
		mu.Lock()
		defer mu.Unlock()
		if len(dialled) != nodes || most.Load() != 16 {
			t.Errorf("%d of %d nodes were dialled, %d at a time", len(dialled), nodes, most.Load())
		}
	})
}

// Before it has proved a name, a dialler gets the same answer whatever it sends: nothing tells it
// the node's name, the namespace, the versions or the reason.
func TestRefusalsSayNothingBeforeProof(t *testing.T) {
	own, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	verify := func(node string, _ *tls.ConnectionState) error { return errors.New("the list has not " + node) }
	a := start(t, Options{Node: "secret-node", Namespace: "secret-space", Version: 7, TLS: own.TLS(), Verify: verify})
	client, _ := configs(theirs.TLS())
	hi := func(h hello) []byte { return appendMessage(preamble(), msgHello, h.encode()) }
	later := binary.BigEndian.AppendUint16([]byte(magic), protocolVersion+1)
	for name, b := range map[string][]byte{
		"all right":         hi(hello{node: "b", to: "secret-node", namespace: "secret-space", version: 7}),
		"another node":      hi(hello{node: "b", to: "c", namespace: "secret-space", version: 7}),
		"another namespace": hi(hello{node: "b", to: "secret-node", namespace: "x", version: 7}),
		"another version":   hi(hello{node: "b", to: "secret-node", namespace: "secret-space", version: 8}),
		"the node's name":   hi(hello{node: "secret-node", to: "secret-node", namespace: "secret-space", version: 7}),
		"nothing":           hi(hello{node: "b"}),
		"a later protocol":  append(later, 1, 2, 3),
		"no name":           hi(hello{}),
		"another message":   appendMessage(preamble(), msgClaim, make([]byte, claimSize)),
		"a long message":    append(preamble(), msgHello, 0xff, 0xff),
		"HTTP":              []byte("GET / HTTP/1.1\r\n\r\n"),
		"something else":    []byte("something else"),
		"TLS in TLS":        []byte("\x16\x03\x01\x02\x00\x01\x00\x01"),
	} {
		c := tls.Client(dialRaw(t, a), client)
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		saysNothing(t, name, c)
	}
	for name, b := range map[string][]byte{"no TLS": hi(hello{node: "b", to: "secret-node"}), "HTTP without TLS": []byte("GET / HTTP/1.1\r\n\r\n")} {
		c := dialRaw(t, a)
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		saysNothing(t, name, c)
	}
}

// A stranger that listens at a member's address learns as little: the dialler names no node and no
// namespace before the listener has proved the key of the node that was dialled.
func TestADiallerSaysNothingBeforeProof(t *testing.T) {
	own, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	asked := make(chan string, 64)
	verify := func(node string, _ *tls.ConnectionState) error {
		asked <- node
		return errors.New("it has another key than the node of that name")
	}
	a := start(t, Options{
		Node: "secret-node", Namespace: "secret-space", Version: 7, TLS: own.TLS(), Verify: verify, Retry: time.Minute,
	})
	a.SetPeers(map[string]string{"secret-peer": l.Addr().String()})
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, server := configs(theirs.TLS())
	server.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		if h.ServerName != "" {
			t.Errorf("TLS names %q", h.ServerName)
		}
		return nil, nil
	}
	c := tls.Server(conn, server)
	saysNothing(t, "a stranger that listens", c)
	if cert := c.ConnectionState().PeerCertificates[0]; cert.Subject.String()+cert.Issuer.String() != "" || cert.DNSNames != nil {
		t.Errorf("the certificate names %v, %v", cert.Subject, cert.DNSNames)
	}
	select {
	case node := <-asked:
		if node != "secret-peer" {
			t.Errorf("the key of %q is asked for", node)
		}
	default:
		t.Error("the key is not looked at")
	}
}

// saysNothing checks the answer to a stranger that has proved nothing.
func saysNothing(t *testing.T, name string, c net.Conn) {
	t.Helper()
	want := appendMessage(append([]byte(magic), 0, 0), msgRefuse, append([]byte{codeStranger}, "not a member"...))
	got, _ := io.ReadAll(c) // the end of a refused connection may be a reset
	if !bytes.Equal(got, want) {
		t.Errorf("%s: the answer is %q, want %q", name, got, want)
	}
}

// A dialler that is refused before proof is told that, and tries again.
func TestUnprovenRefusalIsUnderstood(t *testing.T) {
	var m [maxMessage]byte
	conn := &script{rest: appendMessage(unproven(), msgRefuse, append([]byte{codeStranger}, stranger...)), n: 100}
	if err := readPreamble(conn); err != errUnproven {
		t.Fatal(err)
	}
	_, err := readMessage(conn, msgRefuse, &m)
	if r, ok := errors.AsType[*refusal](err); !ok || !r.remote || r.code != codeStranger || r.text != stranger || isSlow(err) {
		t.Errorf("got %v", err)
	}
}
