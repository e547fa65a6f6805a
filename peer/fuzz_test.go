package peer

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"slices"
	"testing"
	"time"
)

// script is a connection that delivers the given bytes, n at a time.
type script struct {
	net.Conn
	rest []byte
	n    int
	read int
}

func (s *script) Read(b []byte) (int, error) {
	if len(s.rest) == 0 {
		return 0, errEnded
	}
	n := copy(b[:min(len(b), max(1, s.n))], s.rest)
	s.rest, s.read = s.rest[n:], s.read+n
	return n, nil
}

var errEnded = errors.New("no more bytes")

// FuzzMessage: of a handshake's messages not a byte more is read than they have, whatever they say
// of their length.
func FuzzMessage(f *testing.F) {
	h := hello{node: "a", to: "b", namespace: "n", version: 7}
	f.Add(appendMessage(preamble(), msgHello, h.encode()), 1)
	f.Add(appendMessage(preamble(), msgRefuse, []byte("\x01no")), 100)
	f.Add(appendMessage(preamble(), msgRefuse, nil), 2)
	f.Add(append(preamble(), msgHello, 0xff, 0xff), 3)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), 5)
	f.Add([]byte("\x16\x03\x01\x02\x00\x01\x00"), 5)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		c := &script{rest: b, n: n}
		if err := readPreamble(c); err != nil {
			if bytes.HasPrefix(b, preamble()) {
				t.Errorf("%q: %v", b, err)
			}
			return
		}
		if c.read != preambleSize || !bytes.HasPrefix(b, preamble()) {
			t.Fatalf("%q is a preamble, of which %d bytes were read", b, c.read)
		}
		var buf [maxMessage]byte
		body, err := readMessage(c, msgHello, &buf)
		if err != nil {
			return
		}
		again := appendMessage(preamble(), msgHello, body)
		if c.read != len(again) || !bytes.HasPrefix(b, again) {
			t.Errorf("%q: %d bytes were read for %q", b, c.read, body)
		}
		_ = new(hello).decode(body)
	})
}

// FuzzDeliver: bytes that arrive in pieces are the same frames as bytes that arrive at once, up to
// the same error.
func FuzzDeliver(f *testing.F) {
	both := AppendFrame(AppendFrame(nil, full()), request(3))
	f.Add(both, uint16(1))
	f.Add(append([]byte{0, 0, 0, 0}, both...), uint16(7))
	f.Add(append(slices.Clone(both), 0xff, 0xff), uint16(40))
	f.Add(append(both[:len(both)-1:len(both)-1], both...), uint16(3))
	f.Fuzz(func(t *testing.T, b []byte, piece uint16) {
		if len(b) > 2*readBuffer {
			return
		}
		whole, err := delivered(b, len(b))
		pieces, err2 := delivered(b, max(1, int(piece)))
		if !slices.EqualFunc(whole, pieces, bytes.Equal) || (err == nil) != (err2 == nil) || err != nil && err.Error() != err2.Error() {
			t.Errorf("%q: %d frames and %v, in pieces of %d: %d frames and %v", b, len(whole), err, piece, len(pieces), err2)
		}
		if err != nil && !errors.Is(err, ErrProtocol) {
			t.Error(err)
		}
	})
}

// delivered returns the encodings of the frames that the handler gets of b, so many bytes at a
// time.
func delivered(b []byte, n int) (frames [][]byte, err error) {
	h := handler{frame: func(_ *Stream, f *Frame) { frames = append(frames, AppendFrame(nil, f)) }}
	s := &Stream{t: &Transport{opts: Options{Handler: h}}}
	var f Frame
	for at, end := 0, 0; end < len(b); {
		end = min(end+n, len(b))
		used, err := s.deliver(&f, b[at:end])
		if err != nil {
			return frames, err
		}
		at += used
	}
	return frames, nil
}

// FuzzStranger: a node neither panics nor keeps the connection for ever, whatever a stranger sends.
// One node has no TLS, the second finds no node of that key in its list, and the third takes every
// key for a member's. All of them get the bytes as they are, and the nodes with TLS also get them
// under a key.
func FuzzStranger(f *testing.F) {
	h := hello{node: "z", namespace: "", version: 0}
	f.Add(appendMessage(preamble(), msgHello, h.encode()))
	h.node = "0"
	f.Add(appendMessage(appendMessage(preamble(), msgHello, h.encode()), msgHello, h.encode()))
	f.Add(append(appendMessage(preamble(), msgHello, h.encode()), bytes.Repeat([]byte{7, 0, 32}, 40)...))
	h.to = "m"
	hi := appendMessage(preamble(), msgHello, h.encode())
	f.Add(appendMessage(hi, msgClaim, make([]byte, claimSize)))
	f.Add(appendMessage(appendMessage(hi, msgClaim, make([]byte, claimSize)), msgGo, make([]byte, 8)))
	f.Add([]byte("\x16\x03\x01"))
	identity, err := NewIdentity()
	if err != nil {
		f.Fatal(err)
	}
	client, _ := configs(identity.TLS())
	o := Options{Node: "m", Keepalive: 50 * time.Millisecond}
	nodes := []*Transport{start(f, o)}
	for _, verdict := range []error{errors.New("not in the list"), nil} {
		o.TLS, o.Verify = identity.TLS(), func(string, *tls.ConnectionState) error { return verdict }
		nodes = append(nodes, start(f, o))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for i, tr := range nodes {
			throw(t, tr.Addr(), nil, b)
			if i > 0 {
				throw(t, tr.Addr(), client, b)
			}
		}
	})
}

// throw sends b to a node, under TLS if there is a configuration, and waits until the node has
// closed the connection.
func throw(t *testing.T, addr string, config *tls.Config, b []byte) {
	sock, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	_ = sock.SetDeadline(time.Now().Add(20 * time.Second))
	var c interface {
		net.Conn
		CloseWrite() error
	} = sock.(*net.TCPConn)
	if config != nil {
		c = tls.Client(sock, config)
	}
	go func() {
		_, _ = c.Write(b)
		_ = c.CloseWrite()
	}()
	var buf [512]byte
	for err == nil {
		_, err = c.Read(buf[:])
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%q: the connection is open still, TLS: %v", b, config != nil)
	}
}
