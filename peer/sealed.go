package peer

import (
	"net"
	"sync"
)

// sealed is the connection below a *tls.Conn. During the handshake it is the socket. From
// then on the stream reads and writes the socket itself, as it does without TLS: a read
// goes the stream's short way, and a write only collects records, which the stream's writer
// takes. So TLS costs a record's encryption, and no write waits for the network.
type sealed struct {
	net.Conn // the socket

	mu     sync.Mutex
	stream *Stream // protected by mu until the handshake is over; nil in it
	out    []byte  // protected by mu: records that the writer has not taken yet
	spare  []byte  // protected by mu: the other buffer, if not in use
}

// become makes the connection the stream's.
func (c *sealed) become(s *Stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stream = s
}

func (c *sealed) Read(b []byte) (int, error) {
	c.mu.Lock()
	s := c.stream
	c.mu.Unlock()
	if s == nil {
		return c.Conn.Read(b)
	}
	return s.readSocket(b)
}

// Write collects a record. Package tls writes from the read loop as well, to answer a change
// of keys; that record goes with the next frame.
func (c *sealed) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stream == nil {
		return c.Conn.Write(b)
	}
	c.out = append(c.out, b...)
	return len(b), nil
}

// take returns the records collected so far, in order.
func (c *sealed) take() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.out
	c.out, c.spare = c.spare, nil
	return b
}

// give gives back a buffer of take, or the end of one.
func (c *sealed) give(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cap(b) <= keepBuffer {
		c.spare = b[:0]
	}
}
