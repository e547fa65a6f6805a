package peer

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/internal/takes"
)

// recordsOf makes the two ends of a connection's records.
func recordsOf(tb testing.TB) (dialler, listener *records) {
	tb.Helper()
	client, server := configs(newAuthority(tb).config(tb))
	x, y := net.Pipe()
	defer x.Close()
	defer y.Close()
	a, b := tls.Client(&exactly{Conn: x}, client), tls.Server(&exactly{Conn: y}, server)
	done := make(chan error, 1)
	go func() { done <- a.Handshake() }()
	if err := errors.Join(b.Handshake(), <-done); err != nil {
		tb.Fatal(err)
	}
	dialler, err := newRecords(a, true)
	if err != nil {
		tb.Fatal(err)
	}
	if listener, err = newRecords(b, false); err != nil {
		tb.Fatal(err)
	}
	return dialler, listener
}

// opened returns the plaintext of b, which arrives in pieces of n bytes.
func opened(r *records, b []byte, n int) ([]byte, error) {
	var all []byte
	buf := make([]byte, maxRecord)
	for {
		m, err := r.read(buf, func(to []byte) (int, error) {
			if len(b) == 0 {
				return 0, io.EOF
			}
			got := copy(to[:min(len(to), n)], b)
			b = b[got:]
			return got, nil
		})
		all = append(all, buf[:m]...)
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return all, err
		}
	}
}

func TestRecords(t *testing.T) {
	takes.Seconds(t)
	a, b := recordsOf(t)
	for _, size := range []int{1, 100, maxRecord, maxRecord + 1, 5*maxRecord + 7} {
		text := bytes.Repeat([]byte("0123456789abcdef!"), size/17+1)[:size]
		for _, piece := range []int{1, 1000, 1 << 20} {
			sealed := bytes.Clone(a.seal(text))
			if bytes.Contains(sealed, []byte("456789")) {
				t.Error("it can be read on the way")
			}
			got, err := opened(b, sealed, piece)
			if err != nil || !bytes.Equal(got, text) {
				t.Fatalf("%d bytes in pieces of %d: %d, %v", size, piece, len(got), err)
			}
		}
		if got, err := opened(a, bytes.Clone(b.seal(text)), 100); err != nil || !bytes.Equal(got, text) {
			t.Fatalf("%d bytes the other way: %v", size, err)
		}
	}
}

// A record that is not the next one of this direction of this connection ends the stream.
func TestRecordsThatWereTamperedWith(t *testing.T) {
	takes.Seconds(t)
	text := []byte("a frame")
	for name, tamper := range map[string]func(a, b, other *records) []byte{
		"changed": func(a, _, _ *records) []byte { s := bytes.Clone(a.seal(text)); s[5] ^= 1; return s },
		"length":  func(a, _, _ *records) []byte { s := bytes.Clone(a.seal(text)); s[1]--; return s },
		// From the middle: without its last byte the record is whole if the next one begins with that byte.
		"cut": func(a, _, _ *records) []byte { s := bytes.Clone(a.seal(text)); return slices.Concat(s[:5], s[6:], s) },
		"left out": func(a, _, _ *records) []byte {
			a.seal(text)
			return a.seal(text)
		},
		"repeated":              func(a, _, _ *records) []byte { s := bytes.Clone(a.seal(text)); return append(s, s...) },
		"of the other way":      func(_, b, _ *records) []byte { return b.seal(text) },
		"of another connection": func(_, _, other *records) []byte { return other.seal(text) },
		"plain":                 func(_, _, _ *records) []byte { return AppendFrame(nil, full()) },
		"empty":                 func(a, _, _ *records) []byte { return []byte{0, recordTag} },
		"too long":              func(a, _, _ *records) []byte { return []byte{0xff, 0xff} },
	} {
		a, b := recordsOf(t)
		other, _ := recordsOf(t)
		got, err := opened(b, tamper(a, b, other), 1<<20)
		if !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if want := name == "repeated"; (len(got) > 0) != want {
			t.Errorf("%s: %q has arrived", name, got)
		}
	}
}

func TestRecordsDoNotAllocate(t *testing.T) {
	a, b := recordsOf(t)
	text, buf := make([]byte, 60), make([]byte, maxRecord)
	var sealed []byte
	more := func(to []byte) (int, error) { return copy(to, sealed), nil }
	if n := testing.AllocsPerRun(100, func() {
		sealed = a.seal(text)
		if _, err := b.read(buf, more); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzRecords: bytes that this connection's other side has not sealed bring nothing.
func FuzzRecords(f *testing.F) {
	a, _ := recordsOf(f)
	f.Add(bytes.Clone(a.seal([]byte("x"))), 1)
	f.Add([]byte{0, 17}, 7)
	f.Add(bytes.Repeat([]byte{0, 20}, 100), 3)
	_, b := recordsOf(f)
	f.Fuzz(func(t *testing.T, text []byte, piece int) {
		r := &records{in: b.in, raw: make([]byte, 0, readBuffer)}
		if got, err := opened(r, text, max(1, piece)); len(got) > 0 || err != nil && !errors.Is(err, ErrProtocol) {
			t.Errorf("%q, %v", got, err)
		}
	})
}
