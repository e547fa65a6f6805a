package middleware

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/holdfast-go/holdfast/internal/once"
)

// A record is the stored state of a request: a once.Record.
type record struct {
	state  once.State
	print  fingerprint
	answer *answer // if answered
	status int     // if not kept
}

const (
	answered = once.Answered // the handler's answer is in the record
	notKept  = once.NotKept  // the handler has answered, but the answer is too large
	failed   = once.Failed   // the handler has answered that the request may be repeated
)

// encode returns the bytes of once.Encode; then, if not kept, status; if answered, status, header,
// names of removed headers, body, trailer. Numbers are uvarints, and texts and lists have their
// length before them.
func (r *record) encode() []byte {
	b := once.Encode(r.state, r.print)
	switch r.state {
	case notKept:
		b = binary.AppendUvarint(b, uint64(r.status))
	case answered:
		a := r.answer
		b = binary.AppendUvarint(b, uint64(a.status))
		b = appendHeader(b, a.header)
		b = appendTexts(b, a.removed)
		b = appendText(b, a.body)
		b = appendHeader(b, a.trailer)
	}
	return b
}

func appendText[T string | []byte](b []byte, s T) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendTexts(b []byte, all []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, s := range all {
		b = appendText(b, s)
	}
	return b
}

func appendHeader(b []byte, h http.Header) []byte {
	b = binary.AppendUvarint(b, uint64(len(h)))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		b = appendText(b, name)
		b = appendTexts(b, h[name])
	}
	return b
}

// decodePayload takes a record apart. The result does not share memory with found.
func decodePayload(found once.Record) (*record, error) {
	d := decoder{b: found.Payload}
	r := &record{state: found.State, print: found.Print}
	switch r.state {
	case notKept:
		r.status = d.status()
	case answered:
		r.answer = &answer{status: d.status(), header: d.header(), removed: d.texts(), body: append([]byte(nil), d.text()...), trailer: d.header()}
	}
	if d.bad || len(d.b) != 0 {
		return nil, fmt.Errorf("%w: a payload of %d bytes, %v", once.ErrRecord, len(found.Payload), r.state)
	}
	return r, nil
}

// decoder takes a record apart. Once bad it returns zero values.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) take(n int) []byte {
	if d.bad || n > len(d.b) {
		d.bad, d.b = true, nil
		return nil
	}
	p := d.b[:n:n]
	d.b = d.b[n:]
	return p
}

// count reads a number of things that take a byte at least: more than are left cannot be.
func (d *decoder) count() int {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v > uint64(len(d.b)-n) {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return int(v)
}

func (d *decoder) status() int {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || v < 101 || v > 999 { // net/http panics at others
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return int(v)
}

func (d *decoder) text() []byte { return d.take(d.count()) }

func (d *decoder) texts() []string {
	var all []string
	for range d.count() {
		all = append(all, string(d.text()))
		if d.bad {
			return nil
		}
	}
	return all
}

func (d *decoder) header() http.Header {
	n := d.count()
	if n == 0 {
		return nil
	}
	h := make(http.Header)
	for range n {
		name := string(d.text())
		h[name] = d.texts()
		if d.bad {
			return nil
		}
	}
	return h
}
