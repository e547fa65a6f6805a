package gossip

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hashicorp/memberlist"

	"github.com/holdfast-go/holdfast/ring"
)

func TestMetadata(t *testing.T) {
	for _, m := range []metadata{
		{},
		{state: ring.Active, algorithm: 1, partitions: 1021, session: "ABC", peer: "10.0.0.1:7000"},
		{state: ring.Leaving, algorithm: 255, partitions: 1 << 16, session: strings.Repeat("s", maxSession), peer: strings.Repeat("p", maxPeer)},
	} {
		b := m.encode()
		if got, err := decode(b); err != nil || got != m {
			t.Errorf("%+v became %+v, %v", m, got, err)
		}
		if len(b) > memberlist.MetaMaxSize {
			t.Errorf("%d bytes", len(b))
		}
		for i := range b {
			if _, err := decode(b[:i]); err == nil {
				t.Errorf("%+v: the first %d bytes are accepted", m, i)
			}
		}
		if got, err := decode(append(b, "of a later version"...)); err != nil || got != m {
			t.Errorf("%+v, with more after it, became %+v, %v", m, got, err)
		}
	}
	// The encoding is part of the protocol.
	want := "\x01\x01\x01\x00\x00\x03\xfd\x02ab\x03h:1"
	if got := (metadata{ring.Active, 1, 1021, "ab", "h:1"}).encode(); string(got) != want {
		t.Errorf("%q", got)
	}
}

func TestNodesThatAreIncompatible(t *testing.T) {
	good := metadata{state: ring.Active, algorithm: ring.Algorithm, partitions: 7, session: "s", peer: "p"}
	with := func(f func(*metadata)) []byte {
		m := good
		f(&m)
		return m.encode()
	}
	long := strings.Repeat("x", maxSession+1)
	for what, x := range map[string]struct {
		name string
		meta []byte
		ok   bool
	}{
		"good":            {"a", good.encode(), true},
		"no metadata":     {"a", nil, false},
		"another version": {"a", append([]byte{3}, good.encode()[1:]...), false},
		"algorithm":       {"a", with(func(m *metadata) { m.algorithm++ }), false},
		"partitions":      {"a", with(func(m *metadata) { m.partitions++ }), false},
		"state":           {"a", with(func(m *metadata) { m.state = ring.Leaving + 1 }), false},
		"long session":    {"a", with(func(m *metadata) { m.session = long }), false},
		"bad session":     {"a", with(func(m *metadata) { m.session = "a\nb" }), false},
		"bad peer":        {"a", with(func(m *metadata) { m.peer = "ä" }), false},
		"no name":         {"", good.encode(), false},
		"long name":       {long, good.encode(), false},
		"bad name":        {"a b", good.encode(), false},
	} {
		n := describe(x.name, "1.2.3.4:5", x.meta, 7)
		want := ring.Node{Name: x.name, Gossip: "1.2.3.4:5", Incompatible: true}
		if x.ok {
			want = ring.Node{Name: x.name, Gossip: "1.2.3.4:5", State: ring.Active, Session: "s", Peer: "p"}
		}
		if n != want {
			t.Errorf("%s: %+v", what, n)
		}
	}
}

func FuzzMetadata(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(metadata{state: ring.Active, algorithm: ring.Algorithm, partitions: 1021, session: "s", peer: "10.0.0.1:1"}.encode())
	f.Add([]byte("\x01\x00\x01\x00\x00\x00\x00\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := describe("x", "", b, 1021)
		m, err := decode(b)
		if err != nil {
			if (m != metadata{}) || !n.Incompatible {
				t.Errorf("garbage made %+v, %+v", m, n)
			}
			return
		}
		if !bytes.HasPrefix(b, m.encode()) {
			t.Errorf("%q has two encodings", b)
		}
		if len(m.encode()) > memberlist.MetaMaxSize || m.state > ring.Leaving || !printable(m.session+m.peer) {
			t.Errorf("accepted: %+v", m)
		}
	})
}
