package gossip

import (
	"encoding/binary"
	"errors"

	"github.com/holdfast-go/holdfast/ring"
)

// metadata is the part of every alive message that this package writes:
//
//	1  version of this encoding: rises when an earlier version could not read it
//	1  state
//	1  algorithm of the placement
//	4  partitions, big endian
//	1  length of the session, then the session
//	1  length of the peer address, then the address
//
// Every field has one encoding only. A later version may have more after them: that is skipped.
// memberlist allows 512 bytes.
type metadata struct {
	state      ring.State
	algorithm  uint8
	partitions uint32
	session    string
	peer       string
}

const (
	metadataVersion = 1
	metadataHeader  = 7
	maxName         = 128 // bytes
	maxSession      = 128
	maxPeer         = 255
)

var errMetadata = errors.New("gossip: metadata of another version, or garbage")

func (m metadata) encode() []byte {
	b := make([]byte, 0, metadataHeader+2+len(m.session)+len(m.peer))
	b = append(b, metadataVersion, byte(m.state), m.algorithm)
	b = binary.BigEndian.AppendUint32(b, m.partitions)
	b = append(append(b, byte(len(m.session))), m.session...)
	return append(append(b, byte(len(m.peer))), m.peer...)
}

// decode copies: memberlist keeps the buffer.
func decode(b []byte) (metadata, error) {
	if len(b) < metadataHeader || b[0] != metadataVersion || b[1] > byte(ring.Leaving) {
		return metadata{}, errMetadata
	}
	m := metadata{state: ring.State(b[1]), algorithm: b[2], partitions: binary.BigEndian.Uint32(b[3:])}
	session, b, ok := text(b[metadataHeader:], maxSession)
	if !ok {
		return metadata{}, errMetadata
	}
	peer, _, ok := text(b, maxPeer)
	if !ok {
		return metadata{}, errMetadata
	}
	m.session, m.peer = session, peer
	return m, nil
}

// text takes a string off the front of b.
func text(b []byte, limit int) (s string, rest []byte, ok bool) {
	if len(b) == 0 {
		return "", nil, false
	}
	end := 1 + int(b[0])
	if end > 1+limit || end > len(b) {
		return "", nil, false
	}
	s = string(b[1:end])
	return s, b[end:], printable(s)
}

// printable: these strings end in logs, in keys at the arbiter and in dialled addresses.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func checkText(what, s string, limit int) error {
	if len(s) > limit || !printable(s) {
		return wrong(what, "%.40q must be at most %d printable ASCII characters, without spaces", s, limit)
	}
	return nil
}

// describe makes a Node of gossip's data. Whatever is wrong with it, the node is a member, and
// should be seen.
func describe(name, gossip string, meta []byte, partitions int) ring.Node {
	n := ring.Node{Name: name, Gossip: gossip}
	m, err := decode(meta)
	if err != nil || m.algorithm != ring.Algorithm || int64(m.partitions) != int64(partitions) ||
		name == "" || checkText("name", name, maxName) != nil {
		n.Incompatible = true
		return n
	}
	n.State, n.Session, n.Peer = m.state, m.session, m.peer
	return n
}
