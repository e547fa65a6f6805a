package peer

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// The handshake, inside TLS if it is set:
//
//	dialler   preamble, hello
//	listener  preamble, hello
//	dialler   claim
//	listener  claim
//	decider   go, with a number
//
// Either side may send a refusal instead of any message. The decider is the node with the
// smaller name, whether it dialled or listened. TLS proves that each side has the key of its
// certificate. Options.Verify decides whether that key belongs to the name: to the one that was
// dialled, before the dialler's hello, or to the one in the hello of the dialler. Before that, a
// side names nothing: all refusals are the same, without a protocol version.

// conversation is one handshake.
type conversation struct {
	t    *Transport
	sock net.Conn
	conn net.Conn // the socket, then a *tls.Conn if TLS is set
	safe *records // of the stream, if TLS is set
	dial bool

	spoken bool // the preamble is sent
	proven bool // the peer has the name that its hello says, or there is no Options.Verify
	over   bool // the peer would read our further bytes as frames

	mine   hello
	peer   hello
	frames uint16 // of the stream, once the hellos were checked

	buf [maxMessage]byte
}

// conversation begins a handshake. to is the node that was dialled, empty for an inbound
// connection.
func (t *Transport) conversation(sock net.Conn, to string) *conversation {
	c := &conversation{t: t, sock: sock, conn: sock, dial: to != "", proven: t.opts.Verify == nil}
	c.mine = hello{node: t.opts.Node, to: to, namespace: t.opts.Namespace, version: t.opts.Version, frames: t.opts.Frames}
	return c
}

// greet makes the connection a stream, which the caller must run, or closes it and says why not.
func (c *conversation) greet() (s, prev *Stream, err error) {
	t, sock := c.t, c.sock
	if !t.begin(sock) {
		sock.Close()
		return nil, nil, refuse(codeGone, "closing")
	}
	defer t.end(sock)
	if tc, ok := sock.(*net.TCPConn); ok {
		_ = tc.SetNoDelay(true) // Go's default, but we depend on it
	}
	_ = sock.SetDeadline(time.Now().Add(greetingLimit))
	if err = c.startTLS(); err == nil {
		s, prev, err = c.talk()
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

// startTLS goes over to TLS if it is set.
func (c *conversation) startTLS() error {
	if c.t.client == nil {
		return nil
	}
	below := &exactly{Conn: c.conn}
	var tc *tls.Conn
	if c.dial {
		tc = tls.Client(below, c.t.client)
	} else {
		tc = tls.Server(below, c.t.server)
	}
	if err := tc.HandshakeContext(context.Background()); err != nil { // the socket has a deadline
		if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
			return refuse(codeSettings, "one side uses TLS, the other does not")
		}
		if !below.came && isClosed(err) {
			return errSilent
		}
		return fmt.Errorf("peer: TLS: %w", err)
	}
	var err error
	c.conn = tc
	c.safe, err = newRecords(tc, c.dial)
	return err
}

// talk is the handshake proper.
func (c *conversation) talk() (s, prev *Stream, err error) {
	if err := c.hellos(); err != nil {
		return nil, nil, err
	}
	decider := c.mine.node < c.peer.node
	var ours claim
	if !decider {
		ours = c.t.claim(c.peer.node)
	}
	if c.dial {
		if err := c.send(msgClaim, ours.encode()); err != nil {
			return nil, nil, err
		}
	}
	theirs, err := c.readClaim()
	if err != nil {
		return nil, nil, err
	}
	var out []byte
	if !c.dial {
		out = appendMessage(out, msgClaim, ours.encode())
	}
	if decider {
		s, prev, err = c.t.decide(c.peer.node, theirs, c)
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
	return c.t.follow(c.peer.node, binary.BigEndian.Uint64(body), c)
}

// hellos exchanges and checks the hellos.
func (c *conversation) hellos() error {
	first := appendMessage(preamble(), msgHello, c.mine.encode())
	if c.dial {
		if err := c.verify(c.mine.to); err != nil {
			return err
		}
		c.spoken = true
		if _, err := c.conn.Write(first); err != nil {
			if c.safe == nil && isClosed(err) { // nothing has come
				err = errSilent
			}
			return err
		}
	}
	if err := readPreamble(c.conn); err == errUnproven { // unwrapped
		_, err = readMessage(c.conn, msgRefuse, &c.buf)
		return err
	} else if err != nil {
		return err
	}
	theirs, err := readMessage(c.conn, msgHello, &c.buf)
	if err != nil {
		return err
	}
	if err := c.peer.decode(theirs); err != nil {
		return err
	}
	if err := c.verify(c.peer.node); err != nil {
		return err
	}
	if err := c.check(); err != nil || c.dial {
		return err
	}
	c.spoken = true
	_, err = c.conn.Write(first)
	return err
}

// verify asks Options.Verify about the node: the one that was dialled, or the one that the peer's
// hello names.
func (c *conversation) verify(node string) error {
	tc, ok := c.conn.(*tls.Conn)
	if !ok || c.t.opts.Verify == nil || c.dial && c.proven {
		return nil // check compares the dialled node's hello
	}
	state := tc.ConnectionState()
	if err := c.t.opts.Verify(node, &state); err != nil {
		return &refusal{code: codeStranger, text: stranger, cause: err}
	}
	c.proven = true
	return nil
}

// check compares the peer's hello with our own settings.
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
	var ok bool
	if c.frames, ok = mine.frames.common(peer.frames); !ok {
		from, to := c.dialler().frames, c.listener().frames
		return refuse(codeSettings, "no version of frames in common: one that speaks %d to %d dialled one that speaks %d to %d: upgrade by way of a release between them",
			from.Oldest, from.Newest, to.Oldest, to.Newest)
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

// readClaim reads the peer's claim.
func (c *conversation) readClaim() (cl claim, err error) {
	body, err := readMessage(c.conn, msgClaim, &c.buf)
	if err != nil {
		return cl, err
	}
	if len(body) != claimSize {
		return cl, refuse(codeOther, "malformed claim")
	}
	return decodeClaim(body), nil
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
	first, body := preamble(), append([]byte{r.code}, r.text[:min(len(r.text), maxReason)]...)
	if !c.proven {
		first, body = unproven(), append([]byte{codeStranger}, stranger...)
	}
	var b []byte
	if !c.spoken {
		b = append(b, first...)
	}
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
