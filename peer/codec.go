package peer

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// A frame on the wire, numbers big-endian:
//
//	length  2 bytes  of the rest; 0 is a keepalive, which is no frame
//	kind    1 byte
//	fields  2 bytes  which of the fields below follow
//	then, in this order, each field that is not zero: flags 1 byte; request, partition,
//	epoch, token, count, left, ping as varints; session and key as a varint length and bytes
//
// There is exactly one encoding of each frame: a field that is present and zero, a varint longer
// than needed, and bytes left over are errors. The bits say which fields follow, and not the kind,
// so that this package need not know the use of each kind.
const (
	lengthSize = 2
	headSize   = lengthSize + 3
)

const (
	hasFlags = 1 << iota
	hasRequest
	hasPartition
	hasEpoch
	hasToken
	hasCount
	hasLeft
	hasPing
	hasSession
	hasKey
	hasUnknown // this bit and those above
)

// AppendFrame appends the encoding of f, with its length, to b. It panics if [Frame.Check]
// has an objection to f.
func AppendFrame(b []byte, f *Frame) []byte {
	if err := f.Check(); err != nil {
		panic(err)
	}
	return appendFrame(b, f)
}

func appendFrame(b []byte, f *Frame) []byte {
	start := len(b)
	b = append(b, 0, 0, byte(f.Kind), 0, 0)
	var has uint16
	if f.Flags != 0 {
		has |= hasFlags
		b = append(b, f.Flags)
	}
	if f.Request != 0 {
		has |= hasRequest
		b = appendUvarint(b, f.Request)
	}
	if f.Partition != 0 {
		has |= hasPartition
		b = appendUvarint(b, uint64(f.Partition))
	}
	if f.Epoch != 0 {
		has |= hasEpoch
		b = appendUvarint(b, uint64(f.Epoch))
	}
	if f.Token != 0 {
		has |= hasToken
		b = appendUvarint(b, f.Token)
	}
	if f.Count != 0 {
		has |= hasCount
		b = appendUvarint(b, uint64(f.Count))
	}
	if f.Left != 0 {
		has |= hasLeft
		b = appendUvarint(b, uint64(f.Left))
	}
	if f.Ping != 0 {
		has |= hasPing
		b = appendUvarint(b, uint64(f.Ping))
	}
	if len(f.Session) != 0 {
		has |= hasSession
		b = appendUvarint(b, uint64(len(f.Session)))
		b = append(b, f.Session...)
	}
	if len(f.Key) != 0 {
		has |= hasKey
		b = appendUvarint(b, uint64(len(f.Key)))
		b = append(b, f.Key...)
	}
	binary.BigEndian.PutUint16(b[start:], uint16(len(b)-start-lengthSize))
	binary.BigEndian.PutUint16(b[start+lengthSize+1:], has)
	return b
}

// Decode sets f to the frame that b holds, with its length and nothing else. Session and
// Key become parts of b. It allocates nothing unless it fails. The error matches
// [ErrProtocol]; f is then undefined.
func (f *Frame) Decode(b []byte) error {
	*f = Frame{}
	if len(b) < headSize || len(b) > lengthSize+MaxFrame || int(binary.BigEndian.Uint16(b)) != len(b)-lengthSize {
		return fmt.Errorf("%w: %d bytes are not one frame", ErrProtocol, len(b))
	}
	f.Kind = Kind(b[lengthSize])
	if !f.Kind.valid() {
		return fmt.Errorf("%w: unknown kind %d", ErrProtocol, uint8(f.Kind))
	}
	has := binary.BigEndian.Uint16(b[lengthSize+1:])
	d := decoder{b: b[headSize:]}
	if has >= hasUnknown {
		d.bad = "unknown field"
	}
	if has&hasFlags != 0 {
		f.Flags = d.byte()
	}
	if has&hasRequest != 0 {
		f.Request = d.uint64()
	}
	if has&hasPartition != 0 {
		f.Partition = d.uint32()
	}
	if has&hasEpoch != 0 {
		f.Epoch = d.uint32()
	}
	if has&hasToken != 0 {
		f.Token = d.uint64()
	}
	if has&hasCount != 0 {
		f.Count = d.uint32()
	}
	if has&hasLeft != 0 {
		f.Left = d.uint32()
	}
	if has&hasPing != 0 {
		f.Ping = d.uint32()
	}
	if has&hasSession != 0 {
		f.Session = d.bytes(MaxSession)
	}
	if has&hasKey != 0 {
		f.Key = d.bytes(MaxKey)
	}
	if d.bad == "" && d.at != len(d.b) {
		d.bad = "bytes left over"
	}
	if d.bad != "" {
		return fmt.Errorf("%w: %v: %s", ErrProtocol, f.Kind, d.bad)
	}
	return nil
}

// decoder takes fields off the front of b, which at has passed. bad is the first thing that was
// wrong; afterwards the fields are of no meaning.
type decoder struct {
	b   []byte
	at  int
	bad string
}

func (d *decoder) fail(why string) {
	if d.bad == "" {
		d.bad = why
	}
	d.at = len(d.b)
}

func (d *decoder) byte() byte {
	if d.at == len(d.b) || d.b[d.at] == 0 {
		d.fail("a byte that is missing or zero")
		return 0
	}
	v := d.b[d.at]
	d.at++
	return v
}

// uint64 reads a varint. The last byte of one that is no longer than needed is not zero. This also
// catches the value 0, which must not be present.
func (d *decoder) uint64() uint64 {
	b := d.b[d.at:]
	if len(b) > 0 && b[0]-1 < 0x7f { // one byte, of 1 to 127
		d.at++
		return uint64(b[0])
	}
	if len(b) > 1 && b[0] >= 0x80 && b[1]-1 < 0x7f { // two
		d.at += 2
		return uint64(b[0]&0x7f) | uint64(b[1])<<7
	}
	if len(b) >= 8 {
		w := binary.LittleEndian.Uint64(b)
		last := ^w & 0x8080808080808080 // the top bit of each byte that ends a varint
		n := bits.TrailingZeros64(last)/8 + 1
		switch {
		case n <= 8 && b[n-1] != 0:
			d.at += n
			return septets(w & (last ^ (last - 1)))
		case n > 8 && len(b) > 8 && b[8]-1 < 0x7f: // as tokens have
			d.at += 9
			return septets(w) | uint64(b[8])<<56
		}
	}
	var v uint64
	var shift uint
	for i, c := range b {
		if c < 0x80 {
			if c == 0 || shift == 63 && c > 1 {
				break
			}
			d.at += i + 1
			return v | uint64(c)<<(shift&63)
		}
		if shift == 63 {
			break
		}
		v |= uint64(c&0x7f) << (shift & 63)
		shift += 7
	}
	d.fail("a number that is cut off, too large, too long, or zero")
	return 0
}

// appendUvarint is [binary.AppendUvarint], by eight bytes at a time: it may write behind the result,
// where b has capacity.
func appendUvarint(b []byte, v uint64) []byte {
	if v < 1<<7 {
		return append(b, byte(v))
	}
	return appendLong(b, v)
}

// appendLong is appendUvarint of two bytes or more.
func appendLong(b []byte, v uint64) []byte {
	const more = 0x8080808080808080
	if v < 1<<14 {
		return append(b, byte(v)|0x80, byte(v>>7))
	}
	if v < 1<<56 {
		n := (bits.Len64(v) + 6) / 7
		w := spread(v) | more&(1<<(8*n-8)-1)
		return binary.LittleEndian.AppendUint64(b, w)[:len(b)+n]
	}
	b = binary.LittleEndian.AppendUint64(b, spread(v)|more)
	if v >>= 56; v < 1<<7 {
		return append(b, byte(v))
	}
	return append(b, byte(v)|0x80, 1)
}

// spread is the inverse of septets, for the lower 56 bits of v.
func spread(v uint64) uint64 {
	v = v&0x0fffffff | v<<4&0x0fffffff00000000
	v = v&0x00003fff00003fff | v<<2&0x3fff00003fff0000
	return v&0x007f007f007f007f | v<<1&0x7f007f007f007f00
}

// septets joins the lower seven bits of the eight bytes of w: pairs first, then pairs of those.
func septets(w uint64) uint64 {
	w = w&0x007f007f007f007f | w&0x7f007f007f007f00>>1
	w = w&0x00003fff00003fff | w&0x3fff00003fff0000>>2
	return w&0x0fffffff | w&0x0fffffff00000000>>4
}

func (d *decoder) uint32() uint32 {
	v := d.uint64()
	if v > math.MaxUint32 {
		d.fail("a number above 32 bits")
	}
	return uint32(v)
}

func (d *decoder) bytes(limit uint64) []byte {
	n := d.uint64()
	b := d.b[d.at:]
	if n > limit || n > uint64(len(b)) {
		d.fail("a text that is cut off or too long")
		return nil
	}
	d.at += int(n)
	return b[:n:n] // no capacity beyond: an append must not write into the next field
}
