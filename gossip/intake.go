package gossip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/memberlist"
)

// An intake reads msgpack, and keeps the bytes that it has read. It takes no more memory than bytes
// have come, whatever lengths they name.
type intake struct {
	from io.Reader
	left int    // bytes that may still be read
	most uint64 // the largest number in a statement about a node; 0: no statement
	got  bytes.Buffer
}

const maxDepth = 4

var (
	errBounds = errors.New("a length beyond the message's end")
	errValue  = errors.New("a value that no node sends")
	errLength = errors.New("a text or list longer than those of nodes")
	errNumber = errors.New("a number that no node has reached yet")
)

// take reads n bytes. They are valid until the next call.
func (in *intake) take(n int) ([]byte, error) {
	if n < 0 || n > in.left {
		return nil, errBounds
	}
	in.left -= n
	begin := in.got.Len()
	if _, err := io.CopyN(&in.got, in.from, int64(n)); err != nil {
		if begin > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return in.got.Bytes()[begin:], nil
}

// number reads a big-endian number of so many bytes.
func (in *intake) number(bytes int) (uint64, error) {
	b, err := in.take(bytes)
	if err != nil {
		return 0, err
	}
	var x [8]byte
	copy(x[8-bytes:], b)
	return binary.BigEndian.Uint64(x[:]), nil
}

// A token is the beginning of a value: its kind and its length, or the number that it is.
type token struct {
	kind byte // one of the constants below
	n    uint64
}

const (
	scalar   = iota // n more bytes
	number          // n itself
	sequence        // n values
	mapping         // n names and values
)

// token reads the beginning of a value.
func (in *intake) token() (token, error) {
	b, err := in.take(1)
	if err != nil {
		return token{}, err
	}
	switch c := b[0]; {
	case c < 0x80:
		return token{number, uint64(c)}, nil
	case c < 0x90:
		return token{mapping, uint64(c & 15)}, nil
	case c < 0xa0:
		return token{sequence, uint64(c & 15)}, nil
	case c < 0xc0:
		return token{scalar, uint64(c & 31)}, nil
	case c == 0xc0, c == 0xc2, c == 0xc3: // nil, false, true
		return token{scalar, 0}, nil
	case c >= 0xc4 && c <= 0xc6: // bytes
		return in.long(scalar, 1<<(c-0xc4))
	case c == 0xca, c == 0xcb: // floats
		return token{scalar, 4 << (c - 0xca)}, nil
	case c >= 0xcc && c <= 0xcf:
		return in.long(number, 1<<(c-0xcc))
	case c >= 0xd0 && c <= 0xd3: // numbers with a sign
		t, err := in.long(number, 1<<(c-0xd0))
		if err == nil && t.n>>(8<<(c-0xd0)-1) != 0 {
			err = errValue
		}
		return t, err
	case c >= 0xd9 && c <= 0xdb: // strings
		return in.long(scalar, 1<<(c-0xd9))
	case c == 0xdc, c == 0xdd:
		return in.long(sequence, 2<<(c-0xdc))
	case c == 0xde, c == 0xdf:
		return in.long(mapping, 2<<(c-0xde))
	}
	return token{}, errValue // extensions and negative numbers
}

func (in *intake) long(kind byte, bytes int) (token, error) {
	n, err := in.number(bytes)
	if kind != number && n > uint64(in.left) {
		return token{}, errBounds
	}
	return token{kind, n}, err
}

// value reads a value, and the values in it.
func (in *intake) value(depth int) error {
	t, err := in.token()
	if err != nil {
		return err
	}
	switch {
	case in.most == 0: // no statement
	case t.kind == number && t.n > in.most:
		return errNumber
	case t.kind != number && t.n > memberlist.MetaMaxSize: // memberlist keeps statements, and repeats them
		return errLength
	}
	switch t.kind {
	case scalar:
		_, err = in.take(int(t.n))
	case mapping:
		t.n *= 2
		fallthrough
	case sequence:
		if depth == maxDepth {
			return errValue
		}
		for ; err == nil && t.n > 0; t.n-- {
			err = in.value(depth + 1)
		}
	}
	return err
}

// fields reads a map of names, each there once, to numbers and booleans, which count as 0.
func (in *intake) fields() (map[string]uint64, error) {
	t, err := in.token()
	if err != nil {
		return nil, err
	}
	if t.kind != mapping || t.n > 16 {
		return nil, errValue
	}
	all := make(map[string]uint64, t.n)
	for range t.n {
		name, err := in.token()
		if err != nil {
			return nil, err
		}
		if name.kind != scalar {
			return nil, errValue
		}
		text, err := in.take(int(name.n))
		if err != nil {
			return nil, err
		}
		key := string(text)
		v, err := in.token()
		if err != nil {
			return nil, err
		}
		if _, twice := all[key]; twice || v.kind != number && (v.kind != scalar || v.n != 0) {
			return nil, fmt.Errorf("%w: %q", errValue, key)
		}
		all[key] = v.n
	}
	return all, nil
}
