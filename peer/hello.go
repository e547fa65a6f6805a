package peer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/holdfast-go/holdfast/internal/unfound"
)

// The handshake's messages: a type, two bytes of length, and a body. Before the first of each side
// comes the preamble. This form, and that of refusals, must not change with the protocol version,
// so that nodes of different versions can tell each other. That version is of the handshake and of
// how frames are written. It is not negotiated, and need not be raised for more in a hello: bytes
// after the known fields are skipped. Nor is it raised for other frames: for those there is
// Options.Frames.
const (
	magic           = "hldfst" // 6 bytes, then 2 of version
	protocolVersion = 3
	preambleSize    = len(magic) + 2
	maxMessage      = 512
	maxReason       = 200
)

const (
	msgHello  byte = iota + 1 // names, namespace, version, frames; of later versions more
	msgClaim                  // a follower's knowledge of the connections of the pair
	msgGo                     // the decider: this is the stream
	msgRefuse                 // a code and a text
)

// Codes of a refusal: how the dialler goes on.
const (
	codeOther     byte = iota // tries again
	codeSettings              // tries again slowly: an operator has to change something first
	codeDuplicate             // tries again if need be, and says nothing
	codeBusy                  // tries again
	codeGone                  // tries again slowly, and says nothing
	codeStranger              // tries again: the arbiter may not have listed the session yet
)

// refusal is the reason for no stream, found by this side or told by the other.
type refusal struct {
	code   byte
	text   string
	format string // of the text, for logKey
	remote bool
	cause  error // for the own log only
}

func (r *refusal) Error() string {
	if r.remote {
		return fmt.Sprintf("peer: refused by the other side: %q", r.text)
	}
	if r.cause != nil {
		return "peer: refused: " + r.text + ": " + r.cause.Error()
	}
	return "peer: refused: " + r.text
}

func (r *refusal) Unwrap() error { return r.cause }

func refuse(code byte, format string, args ...any) *refusal {
	return &refusal{code: code, format: format, text: fmt.Sprintf(format, args...)}
}

func isSlow(err error) bool {
	r, ok := errors.AsType[*refusal](err)
	return ok && (r.code == codeSettings || r.code == codeGone)
}

func isQuiet(err error) bool {
	r, ok := errors.AsType[*refusal](err)
	return ok && (r.code == codeDuplicate || r.code == codeGone)
}

func isStranger(err error) bool {
	r, ok := errors.AsType[*refusal](err)
	return ok && r.code == codeStranger
}

// errSilent: the other side has closed the connection without a word. Diallers do, as health
// checks, and nodes that gave a dial up in the moment when it succeeded: a listener does not log
// it. So do proxies that reach no node behind them: a dialler has reached none.
var errSilent = errors.New("peer: the connection was closed without a word")

// isClosed reports whether err says that the other side has closed the connection, in any way.
func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// logKey says which errors are the same for the log: texts contain ports, and words of the other
// side.
func logKey(err error) string {
	if r, ok := errors.AsType[*refusal](err); ok && !r.remote {
		return fmt.Sprintf("%d %s", r.code, r.format)
	} else if ok {
		return fmt.Sprintf("remote %d", min(r.code, codeStranger+1)) // later versions may have more
	}
	return "failed"
}

// hello is a node's introduction of itself.
type hello struct {
	node      string
	to        string // the node that the dialler expects; empty from the listener
	namespace string
	version   uint64
	frames    Versions
}

func (h *hello) encode() []byte {
	var b []byte
	for _, s := range []string{h.node, h.to, h.namespace} {
		b = append(b, byte(len(s)))
		b = append(b, s...)
	}
	b = binary.BigEndian.AppendUint64(b, h.version)
	b = binary.BigEndian.AppendUint16(b, h.frames.Oldest)
	return binary.BigEndian.AppendUint16(b, h.frames.Newest)
}

func (h *hello) decode(b []byte) error {
	for _, s := range []*string{&h.node, &h.to, &h.namespace} {
		if len(b) == 0 || len(b) <= int(b[0]) || b[0] > MaxName {
			return refuse(codeOther, "malformed hello")
		}
		*s = string(b[1 : 1+b[0]])
		b = b[1+b[0]:]
	}
	if len(b) < 12 || h.node == "" {
		return refuse(codeOther, "malformed hello")
	}
	h.version = binary.BigEndian.Uint64(b)
	h.frames = Versions{binary.BigEndian.Uint16(b[8:]), binary.BigEndian.Uint16(b[10:])}
	return nil
}

func preamble() []byte {
	return binary.BigEndian.AppendUint16([]byte(magic), protocolVersion)
}

// unproven is the preamble of a refusal before proof. It names no version of the protocol.
func unproven() []byte { return append([]byte(magic), 0, 0) }

// errUnproven: a refusal follows.
var errUnproven = errors.New("peer: a refusal before proof")

// stranger is the text of all refusals before proof.
const stranger = unfound.Stranger

func appendMessage(b []byte, kind byte, body []byte) []byte {
	b = append(b, kind)
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	return append(b, body...)
}

// readPreamble reads the first bytes of the other side, and names the other protocol if it is no
// peer.
func readPreamble(c net.Conn) error {
	var b [preambleSize]byte
	n, err := io.ReadFull(c, b[:])
	got := b[:n]
	switch {
	case n == preambleSize && string(got[:len(magic)]) == magic:
		if v := binary.BigEndian.Uint16(got[len(magic):]); v == 0 {
			return errUnproven
		} else if v != protocolVersion {
			return refuse(codeSettings, "protocol version %d, not %d", v, protocolVersion)
		}
		return nil
	case n >= 2 && (got[0] == 0x15 || got[0] == 0x16) && got[1] == 3:
		return refuse(codeSettings, "one side uses TLS, the other does not")
	case bytes.HasPrefix(got, []byte("GET ")), bytes.HasPrefix(got, []byte("POST ")),
		bytes.HasPrefix(got, []byte("HEAD ")), bytes.HasPrefix(got, []byte("HTTP/")):
		return refuse(codeSettings, "speaks HTTP, and is not a peer")
	case n == 0 && isClosed(err):
		return errSilent
	case err != nil:
		return err
	}
	return refuse(codeSettings, "not a peer: starts with %q", got)
}

// readMessage reads a message of this kind into buf and returns its body, or the other
// side's refusal as an error. It reads no byte beyond it.
func readMessage(c net.Conn, kind byte, buf *[maxMessage]byte) ([]byte, error) {
	var head [3]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(head[1:]))
	if n > maxMessage || head[0] != kind && head[0] != msgRefuse {
		return nil, refuse(codeOther, "message %d of %d bytes in the place of message %d", head[0], n, kind)
	}
	body := buf[:n]
	if _, err := io.ReadFull(c, body); err != nil {
		return nil, err
	}
	if head[0] == msgRefuse {
		r := &refusal{remote: true}
		if n > 0 {
			r.code, r.text = body[0], string(body[1:min(n, 1+maxReason)])
		}
		return nil, r
	}
	return body, nil
}
