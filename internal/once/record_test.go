package once

import (
	"bytes"
	"errors"
	"testing"
)

// A record that is cut short, goes on where nothing follows, or has another version is not taken
// for one.
func TestDecode(t *testing.T) {
	for state, payload := range map[State]string{Started: "", Failed: "", Answered: "answer", NotKept: ""} {
		b := append(Encode(state, Print{1, 31: 2}), payload...)
		r, err := Decode(b)
		if err != nil || r.State != state || r.Print != (Print{1, 31: 2}) || string(r.Payload) != payload {
			t.Errorf("%v: %+v, %v", state, r, err)
		}
		for n := range header {
			if _, err := Decode(b[:n]); !errors.Is(err, ErrRecord) {
				t.Errorf("%v, %d bytes: %v", state, n, err)
			}
		}
		if _, err := Decode(append(bytes.Clone(b), 0)); (err != nil) != (state == Started || state == Failed) {
			t.Errorf("%v with a byte more: %v", state, err)
		}
		b[0]++
		if _, err := Decode(b); !errors.Is(err, ErrRecord) {
			t.Errorf("%v of another version: %v", state, err)
		}
	}
	if _, err := Decode(Encode(9, Print{})); !errors.Is(err, ErrRecord) {
		t.Error(err)
	}
}

// FuzzDecode: a decoded record is encoded to the same bytes.
func FuzzDecode(f *testing.F) {
	f.Add(Encode(Started, Print{}))
	f.Add(append(Encode(Answered, Print{1}), "x"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decode(b)
		if err == nil && !bytes.Equal(append(Encode(r.State, r.Print), r.Payload...), b) {
			t.Fatalf("%q became %+v", b, r)
		}
	})
}
