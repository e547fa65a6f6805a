package peer

import (
	"encoding/binary"
	"net"
)

// exactly is the connection below a *tls.Conn in a handshake. It never reads beyond the end of a
// TLS record: the bytes after the handshake's last one are not TLS, and the stream's to read.
type exactly struct {
	net.Conn
	head []byte // of the record that is being read, as far as it has come
	left int    // bytes of its body that have not come
	came bool   // something has come
}

const tlsHead = 5 // a type, two bytes of version, two of length

func (c *exactly) Read(b []byte) (int, error) {
	if c.left > 0 {
		n, err := c.Conn.Read(b[:min(len(b), c.left)])
		c.left -= n
		return n, err
	}
	n, err := c.Conn.Read(b[:min(len(b), tlsHead-len(c.head))])
	c.came = c.came || n > 0
	c.head = append(c.head, b[:n]...)
	if len(c.head) == tlsHead {
		c.left = int(binary.BigEndian.Uint16(c.head[3:]))
		c.head = c.head[:0]
	}
	return n, err
}
