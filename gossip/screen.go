package gossip

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/memberlist"
)

// A screen looks at messages before memberlist does, and lets through those that a node of this
// package sends. memberlist v0.7.0 believes lengths: it makes 3.4 GB for a packet of 34 bytes, and
// 40 MB for a compressed one. It panics on padding that is longer than the text. With keys this
// takes a member, or a process that has a copy of the arbiter's data.
type screen struct {
	label string
	keys  *memberlist.Keyring // nil: not encrypted
}

// Types of memberlist's messages, by their first byte.
const (
	pingMsg, indirectPingMsg, ackMsg, suspectMsg, aliveMsg, deadMsg, pushPullMsg, compoundMsg = 0, 1, 2, 3, 4, 5, 6, 7

	encryptMsg, nackMsg, crcMsg, errorMsg = 10, 11, 12, 13
	labelMsg                              = 244
)

const (
	maxState = 4 << 20 // bytes of a stream's message
	maxNodes = 10_000  // of a stream's message
)

var (
	errLabel = errors.New("another label")
	errKey   = errors.New("no key of this node opens it")
	errKind  = errors.New("a kind of message that no node sends")
)

// highest returns the largest number that a statement about a node may have now. A node answers a
// wrong statement about itself with the next number, and there is none after 2^32-1: memberlist
// goes on with 0, and no other node listens to that one again. So the numbers that it has to answer
// are lower, and rise. The answer to the highest of all is let through a quarter of a second later,
// when its packets may have been sent: then it comes with a state, within 15 s. Suspect and dead
// messages have an earlier limit (answered). So the answer to one is let through at once, unless
// clocks differ by more. Nodes' own numbers rise with their statements, and stay far below; 2^32
// comes in 2060. A node whose clock is behind another one's lets the same through that much later.
func highest(now time.Time) uint64 {
	const begin, each = 1_767_225_600_000, 250 // ms: 2026, and a quarter of a second
	return 1<<20 + uint64(max(0, now.UnixMilli()-begin)/each)
}

// answered is the distance of the limit of suspect and dead messages below the other one, in time.
const answered = 30 * time.Second

// packet returns the error in a packet.
func (s *screen) packet(b []byte) error {
	if s.label != "" {
		rest, ok := bytes.CutPrefix(b, s.header())
		if !ok {
			return errLabel
		}
		b = rest
	}
	if s.keys != nil {
		var err error
		if b, err = s.open(b, []byte(s.label)); err != nil {
			return err
		}
	}
	if len(b) >= 5 && b[0] == crcMsg {
		b = b[5:]
	}
	if len(b) > 0 && b[0] == compoundMsg {
		return compound(b[1:])
	}
	return command(b)
}

func (s *screen) header() []byte {
	return append([]byte{labelMsg, byte(len(s.label))}, s.label...)
}

// compound checks several messages in one packet.
func compound(b []byte) error {
	if len(b) == 0 || len(b) < 1+2*int(b[0]) {
		return io.ErrUnexpectedEOF
	}
	lengths, rest := b[1:1+2*int(b[0])], b[1+2*int(b[0]):]
	for ; len(lengths) > 0; lengths = lengths[2:] {
		n := int(binary.BigEndian.Uint16(lengths))
		if n > len(rest) {
			return io.ErrUnexpectedEOF
		}
		if err := command(rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// command checks one message of a packet.
func command(b []byte) error {
	if len(b) == 0 {
		return io.ErrUnexpectedEOF
	}
	in := intake{from: bytes.NewReader(b[1:]), left: len(b)}
	switch b[0] {
	case aliveMsg:
		in.most = highest(time.Now())
		return in.value(0)
	case suspectMsg, deadMsg:
		in.most = highest(time.Now().Add(-answered))
		return in.value(0)
	case pingMsg, indirectPingMsg, ackMsg, nackMsg:
		return in.value(0)
	}
	return errKind
}

// stream reads the message of a stream, and returns the reader for memberlist. A node that has
// dialled gets a message without a label.
func (s *screen) stream(conn io.Reader, dialled bool) (io.Reader, error) {
	in := &intake{from: conn, left: maxState}
	if !dialled && s.label != "" {
		label, err := in.take(2 + len(s.label))
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(label, s.header()) {
			return nil, errLabel
		}
	}
	if s.keys == nil {
		return io.MultiReader(&in.got, conn), in.message(dialled)
	}
	head, err := in.take(5) // a type and four bytes of length
	if err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if head[0] != encryptMsg || n == 0 || n > maxState {
		return nil, errKind
	}
	data := append(bytes.Clone(head), s.label...)
	text, err := in.take(int(n))
	if err != nil {
		return nil, err
	}
	opened, err := s.open(text, data)
	if err == errKey && !dialled {
		// memberlist does not open it either, and its answer, under another key, tells the other
		// side so.
		text[n-1] ^= 1 // nor with a key that comes now
		return io.MultiReader(&in.got, conn), nil
	}
	if err != nil {
		return nil, err
	}
	text = opened
	inner := &intake{from: bytes.NewReader(text), left: len(text)}
	return io.MultiReader(&in.got, conn), inner.message(dialled)
}

// message checks the message of a stream.
func (in *intake) message(dialled bool) error {
	kind, err := in.take(1)
	if err != nil {
		return err
	}
	switch {
	case kind[0] == pushPullMsg:
		return in.state()
	case kind[0] == pingMsg && !dialled, (kind[0] == ackMsg || kind[0] == errorMsg) && dialled:
		return in.value(0)
	}
	return errKind
}

// state checks a node's list of others: a header, and so many nodes.
func (in *intake) state() error {
	head, err := in.fields()
	if err != nil {
		return err
	}
	nodes, users := head["Nodes"], head["UserStateLen"]
	if len(head) != 3 || nodes > maxNodes || users != 0 {
		return fmt.Errorf("a state of %d nodes with %d bytes beside", nodes, users)
	}
	in.most = highest(time.Now())
	for range nodes {
		if err := in.value(0); err != nil {
			return err
		}
	}
	return nil
}

// open decrypts memberlist's encryption: a version, a nonce, AES-GCM. Version 0, with padding, is
// that of a protocol that no node speaks.
func (s *screen) open(b, data []byte) ([]byte, error) {
	const nonce = 12
	if len(b) < 1+nonce || b[0] != 1 {
		return nil, errKey
	}
	for _, key := range s.keys.GetKeys() {
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		gcm, err := cipher.NewGCM(block)
		if err != nil {
			return nil, err
		}
		if text, err := gcm.Open(nil, b[1:1+nonce], b[1+nonce:], data); err == nil {
			return text, nil
		}
	}
	return nil, errKey
}
