//go:build unix

package mysql

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
)

// A tapped connection shows its bytes before it writes them.
type tapped struct {
	net.Conn
	see func([]byte) error
}

func (c tapped) Write(b []byte) (int, error) {
	if err := c.see(b); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// A Swap is no transaction. Where it cannot tell whether records were written, it says so of those,
// and never that nothing was written.
func TestMySQL_ASwapThatIsHalfDone(t *testing.T) {
	s := startServer(t)
	var see func([]byte) error
	c := s.config("app")
	to := c.DialFunc
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := to(ctx, network, address)
		return tapped{conn, func(b []byte) error {
			if see != nil {
				return see(b)
			}
			return nil
		}}, err
	}
	st, other := newStore(c, nil), newStore(s.config("app"), nil)
	for _, x := range []*store{st, other} {
		if err := x.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer x.Close()
	}
	keys := []string{"a", "b", "c"}
	load := func() fallback.Look {
		t.Helper()
		look, err := other.Load(t.Context(), keys)
		if err != nil {
			t.Fatal(err)
		}
		return look
	}
	change := func(look fallback.Look, i int, value string) fallback.Change {
		return fallback.Change{Key: keys[i], Version: look.Values[i].Version, Value: []byte(value)}
	}
	write := func(x *store, all ...fallback.Change) ([]bool, error) {
		return x.Swap(t.Context(), load().Server, all)
	}
	unknown := func(what string, err error, done ...bool) {
		t.Helper()
		if err == nil || errors.Is(err, fallback.ErrNotSent) || errors.Is(err, fallback.ErrRefused) {
			t.Errorf("%s: %v, want that it is unknown", what, err)
		}
		var some *fallback.SwapError
		if !errors.As(err, &some) || !slices.Equal(some.Done, done) {
			t.Errorf("%s: %#v, want that %v are written", what, err, done)
			return
		}
		for i, done := range some.Done {
			if done != (some.Errs[i] == nil) {
				t.Errorf("%s: %d is written: %v, error %v", what, i, done, some.Errs[i])
			}
		}
	}

	first := load()
	if done, err := write(st, change(first, 0, "0")); err != nil || !done[0] {
		t.Fatal(done, err)
	}

	lost := errors.New("lost")
	see = func(b []byte) error {
		if bytes.Contains(b, []byte("INSERT INTO")) {
			return lost
		}
		return nil
	}
	_, err := write(st, change(load(), 0, "1"), change(first, 1, "1"))
	see = nil
	unknown("the second statement was not sent", err, true, false)
	if v := load().Values; string(v[0].Value) != "1" || v[1].Version != "" {
		t.Fatalf("%+v", v)
	}

	if done, err := write(st, change(first, 2, "0")); err != nil || !done[0] {
		t.Fatal(done, err)
	}
	stale := load()
	for _, overtaken := range []bool{false, true} {
		if done, err := write(st, change(load(), 1, "1")); err != nil || !done[0] {
			t.Fatal(done, err)
		}
		if overtaken {
			see = func(b []byte) error {
				if bytes.Contains(b, []byte("SELECT name, version")) {
					if done, err := write(other, change(load(), 1, "3")); err != nil || !done[0] {
						t.Error(done, err)
					}
				}
				return nil
			}
		}
		stale.Values = load().Values
		stale.Values[0].Version = "1" // none that there was
		done, err := write(st, change(stale, 0, "2"), change(stale, 1, "2"), change(stale, 2, "2"))
		see = nil
		switch {
		case overtaken:
			unknown("a record that was written again", err, false, false, true)
		case err != nil || done[0] || !done[1] || !done[2]:
			t.Errorf("two of three: %v, %v", done, err)
		}
	}
}
