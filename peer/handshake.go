package peer

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"time"
)

// The handshake, over TLS if it is set:
//
//	dialler   preamble, hello
//	listener  preamble, hello
//	dialler   proof, with its claim
//	listener  proof, with its claim
//	decider   go, with a number
//
// Either side may send a refusal instead of any message. The decider is the node with the
// smaller name, whether it dialled or listened. A proof is an HMAC of the role, both
// hellos, with their nonces, and the claim; so one side's proof is of no use in the other's
// place or on another connection. Under TLS it also covers a secret of that very
// connection, so that nobody with a certificate but without the key can stand in between.
// The dialler proves first: it has chosen whom to talk to, while anybody may dial a
// listener and take a proof away to guess weak keys.

// conversation is one handshake.
type conversation struct {
	t    *Transport
	conn net.Conn
	dial bool

	spoken bool // the preamble is sent
	over   bool // what we send from now on would be read as frames

	mine hello
	peer hello

	transcript hash.Hash
	buf        [maxMessage]byte
}

// greet makes the connection a stream, which the caller must run, or closes it and says why
// not. to is whom we dialled and addr where; both are empty for an inbound connection.
func (t *Transport) greet(sock net.Conn, to, addr string) (s, prev *Stream, err error) {
	if !t.begin(sock) {
		sock.Close()
		return nil, nil, refuse(codeGone, "closing")
	}
	defer t.end(sock)
	if tc, ok := sock.(*net.TCPConn); ok {
		_ = tc.SetNoDelay(true) // Go's default, but we depend on it
	}
	_ = sock.SetDeadline(time.Now().Add(greetingLimit))
	c := &conversation{t: t, conn: sock, dial: to != "", transcript: sha256.New()}
	c.mine = hello{node: t.opts.Node, to: to, namespace: t.opts.Namespace, version: t.opts.Version}
	rand.Read(c.mine.nonce[:])
	if err = c.startTLS(addr); err == nil {
		s, prev, err = c.talk(sock)
	}
	if s != nil && err != nil {
		// Registered, but the go was not sent: it ends without having been up.
		s.Close(fmt.Errorf("%w: %w", ErrLost, err))
		return s, prev, nil
	}
	if err != nil {
		c.refuse(err, sock)
		sock.Close()
		return nil, nil, err
	}
	_ = sock.SetDeadline(time.Time{})
	return s, prev, nil
}

// begin notes a connection so that Close can close it; false if t is closed.
func (t *Transport) begin(c net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.greeting[c] = struct{}{}
	}
	return !t.closed
}

func (t *Transport) end(c net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.greeting, c)
}

// startTLS goes over to TLS if it is set, and makes the connection's own secret part of
// what is proved.
func (c *conversation) startTLS(addr string) error {
	cfg := c.t.opts.TLS
	if cfg == nil {
		return nil
	}
	var tc *tls.Conn
	if c.dial {
		if cfg.ServerName == "" && !cfg.InsecureSkipVerify {
			cfg = cfg.Clone()
			cfg.ServerName, _, _ = net.SplitHostPort(addr)
		}
		tc = tls.Client(c.conn, cfg)
	} else {
		tc = tls.Server(c.conn, cfg)
	}
	if err := tc.HandshakeContext(context.Background()); err != nil { // the socket has a deadline
		if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
			return refuse(codeSettings, "one side uses TLS, the other does not")
		}
		if err == io.EOF && !c.dial { // unwrapped: before the first record
			return errSilent
		}
		return fmt.Errorf("peer: TLS: %w", err)
	}
	c.conn = tc
	state := tc.ConnectionState()
	secret, err := state.ExportKeyingMaterial("EXPORTER-holdfast-peer", nil, sha256.Size)
	if err != nil {
		return fmt.Errorf("peer: TLS: %w", err)
	}
	c.transcript.Write(secret)
	return nil
}

// talk is the handshake proper.
func (c *conversation) talk(sock net.Conn) (s, prev *Stream, err error) {
	if err := c.hellos(); err != nil {
		return nil, nil, err
	}
	decider := c.mine.node < c.peer.node
	var ours claim
	if !decider {
		ours = c.t.claim(c.peer.node)
	}
	if c.dial {
		if err := c.send(msgProof, c.proof(true, ours)); err != nil {
			return nil, nil, err
		}
	}
	theirs, err := c.verify()
	if err != nil {
		return nil, nil, err
	}
	var out []byte
	if !c.dial {
		out = appendMessage(out, msgProof, c.proof(false, ours))
	}
	if decider {
		s, prev, err = c.t.decide(c.peer.node, theirs, c.conn, sock)
		if err != nil {
			return nil, nil, err
		}
		out = appendMessage(out, msgGo, binary.BigEndian.AppendUint64(nil, s.id))
		_, err = c.conn.Write(out)
		return s, prev, err
	}
	if len(out) > 0 {
		if _, err := c.conn.Write(out); err != nil {
			return nil, nil, err
		}
	}
	body, err := readMessage(c.conn, msgGo, &c.buf)
	if err != nil {
		return nil, nil, err
	}
	if len(body) != 8 {
		return nil, nil, refuse(codeOther, "malformed go")
	}
	c.over = true
	return c.t.follow(c.peer.node, binary.BigEndian.Uint64(body), c.conn, sock)
}

// hellos exchanges and checks the hellos.
func (c *conversation) hellos() error {
	mine := c.mine.encode()
	first := appendMessage(preamble(), msgHello, mine)
	if c.dial {
		c.spoken = true
		if _, err := c.conn.Write(first); err != nil {
			return err
		}
	}
	if err := readPreamble(c.conn); err != nil {
		return err
	}
	theirs, err := readMessage(c.conn, msgHello, &c.buf)
	if err != nil {
		return err
	}
	if err := c.peer.decode(theirs); err != nil {
		return err
	}
	if c.dial {
		c.note(mine, theirs)
		return c.check()
	}
	c.note(theirs, mine)
	if err := c.check(); err != nil {
		return err
	}
	c.spoken = true
	_, err = c.conn.Write(first)
	return err
}

// check compares what the peer says with our own settings.
func (c *conversation) check() error {
	mine, peer := &c.mine, &c.peer
	switch {
	case peer.node == mine.node:
		return refuse(codeSettings, "both sides are the node %q", mine.node)
	case c.dial && peer.node != mine.to:
		return refuse(codeOther, "the node is %q, not %q", peer.node, mine.to)
	case !c.dial && peer.to != mine.node:
		return refuse(codeOther, "the node is %q, not %q", mine.node, peer.to)
	case peer.namespace != mine.namespace:
		return refuse(codeSettings, "namespaces differ: %q dialled %q", c.dialler().namespace, c.listener().namespace)
	case peer.version != mine.version:
		return refuse(codeSettings, "versions differ: %#x dialled %#x (hash, partitions, or ring algorithm)", c.dialler().version, c.listener().version)
	}
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	return c.t.may(peer.node)
}

func (c *conversation) dialler() *hello {
	if c.dial {
		return &c.mine
	}
	return &c.peer
}

func (c *conversation) listener() *hello {
	if c.dial {
		return &c.peer
	}
	return &c.mine
}

// note makes the dialler's and the listener's hello part of what is proved.
func (c *conversation) note(dialler, listener []byte) {
	for _, b := range [][]byte{dialler, listener} {
		c.transcript.Write([]byte{byte(len(b) >> 8), byte(len(b))})
		c.transcript.Write(b)
	}
}

// proof returns a proof message of the dialler or the listener.
func (c *conversation) proof(dialler bool, cl claim) []byte {
	role := "holdfast peer: listener"
	if dialler {
		role = "holdfast peer: dialler"
	}
	claims := binary.BigEndian.AppendUint64(nil, cl.seen)
	claims = binary.BigEndian.AppendUint64(claims, cl.live)
	mac := hmac.New(sha256.New, c.t.opts.Key)
	_, _ = io.WriteString(mac, role)
	mac.Write(c.transcript.Sum(nil))
	mac.Write(claims)
	return append(mac.Sum(nil), claims...)
}

// verify reads the peer's proof and checks it.
func (c *conversation) verify() (cl claim, err error) {
	body, err := readMessage(c.conn, msgProof, &c.buf)
	if err != nil {
		return cl, err
	}
	if len(body) != sha256.Size+16 {
		return cl, refuse(codeOther, "malformed proof")
	}
	cl.seen = binary.BigEndian.Uint64(body[sha256.Size:])
	cl.live = binary.BigEndian.Uint64(body[sha256.Size+8:])
	if !hmac.Equal(body, c.proof(!c.dial, cl)) {
		return cl, refuse(codeSettings, "the keys differ")
	}
	return cl, nil
}

func (c *conversation) send(kind byte, body []byte) error {
	_, err := c.conn.Write(appendMessage(nil, kind, body))
	return err
}

// refuse tells the other side why, if the reason was found here.
func (c *conversation) refuse(err error, sock net.Conn) {
	r, ok := errors.AsType[*refusal](err)
	if !ok || r.remote || c.over {
		return
	}
	var b []byte
	if !c.spoken {
		b = append(b, preamble()...)
	}
	body := append([]byte{r.code}, r.text[:min(len(r.text), maxReason)]...)
	_ = sock.SetDeadline(time.Now().Add(greetingLimit / 4))
	if _, err := c.conn.Write(appendMessage(b, msgRefuse, body)); err != nil {
		return
	}
	// To close with bytes unread would reset the connection and may destroy the refusal on
	// its way.
	if tc, ok := sock.(*net.TCPConn); ok {
		_ = tc.CloseWrite()
	}
	_, _ = io.CopyN(io.Discard, sock, 4<<10)
}
