package peer

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
)

// sharing returns the configuration of a node with these shared keys; without any, with no more
// than a key of its own.
func sharing(tb testing.TB, keys ...[]byte) *tls.Config {
	tb.Helper()
	make := NewIdentity
	if len(keys) > 0 {
		make = func() (*Identity, error) { return NewIdentityFor(keys) }
	}
	i, err := make()
	if err != nil {
		tb.Fatal(err)
	}
	return i.TLS()
}

func newKey() []byte {
	key := make([]byte, MinKey)
	rand.Read(key)
	return key
}

func TestSharedKeys(t *testing.T) {
	older, newer, foreign := newKey(), newKey(), newKey()
	id, err := KeyID(foreign)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name              string
		dialler, listener [][]byte
		ok, byListener    bool // TLS ends the handshake at the side that refuses: the one that dials hears first
	}{
		{"the same", [][]byte{older}, [][]byte{older}, true, false},
		{"a key is added", [][]byte{older, newer}, [][]byte{older}, true, false},
		{"it is put first", [][]byte{newer, older}, [][]byte{older, newer}, true, false},
		{"the old one is taken out", [][]byte{newer}, [][]byte{newer, older}, true, false},
		{"it is put first too early", [][]byte{newer, older}, [][]byte{older}, false, true},
		{"the old one is taken out too early", [][]byte{newer}, [][]byte{older, newer}, false, false},
		{"another", [][]byte{foreign}, [][]byte{older}, false, false},
		{"the dialler has none", nil, [][]byte{older}, false, true},
		{"the listener has none", [][]byte{older}, nil, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			la, lb := newLogLines(), newLogLines()
			ea, eb := newEvents(t), newEvents(t)
			a := start(t, Options{Node: "a", TLS: sharing(t, c.dialler...), Handler: ea, Logger: newLogger(la)})
			b := start(t, Options{Node: "b", TLS: sharing(t, c.listener...), Handler: eb, Logger: newLogger(lb)})
			a.SetPeers(map[string]string{"b": b.Addr()})
			if c.ok {
				await(t, ea.ups)
				await(t, eb.ups)
				return
			}
			if c.byListener {
				lb.await(t, "none of the shared keys")
			} else {
				la.await(t, "none of the shared keys")
			}
			a.Close()
			b.Close()
			if len(ea.ups)+len(eb.ups) > 0 {
				t.Error("a stream is up")
			}
		})
	}
	other, err := NewIdentityFor([][]byte{foreign})
	if err != nil {
		t.Fatal(err)
	}
	mine, err := NewIdentityFor([][]byte{older})
	if err != nil {
		t.Fatal(err)
	}
	if err := mine.verify(other.certificate.Leaf); err == nil || !strings.Contains(err.Error(), id) {
		t.Errorf("%v does not name the key %s", err, id)
	}
}

// A certificate that was signed by a node's key, and not by a shared one, proves nothing.
func TestSharedKeysSignNoAuthority(t *testing.T) {
	key := newKey()
	node, err := NewIdentityFor([][]byte{key})
	if err != nil {
		t.Fatal(err)
	}
	below, err := newIdentity(node.certificate.Leaf, node.certificate.PrivateKey.(ed25519.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	state := tls.ConnectionState{PeerCertificates: append(chain(below), chain(node)...)}
	if err := node.accept(state); err == nil {
		t.Error("a chain of two is taken")
	}
	state.PeerCertificates = chain(below)
	if err := node.accept(state); err == nil {
		t.Error("a certificate is taken that a node has signed")
	}
	if err := node.accept(tls.ConnectionState{PeerCertificates: chain(node)}); err != nil {
		t.Error(err)
	}
}

func TestSharedKeysThatAreRefused(t *testing.T) {
	for _, keys := range [][][]byte{nil, {}, {nil}, {{}}, {bytes.Repeat([]byte("k"), MinKey-1)}, {newKey(), []byte("short")}} {
		if _, err := NewIdentityFor(keys); err == nil {
			t.Errorf("%q: no error", keys)
		}
	}
	if _, err := KeyID([]byte("short")); err == nil {
		t.Error("a short key has an ID")
	}
	a, _ := KeyID(bytes.Repeat([]byte("a"), MinKey))
	b, _ := KeyID(bytes.Repeat([]byte("a"), MinKey))
	if c, _ := KeyID(bytes.Repeat([]byte("b"), MinKey)); len(a) != 16 || a != b || a == c {
		t.Errorf("IDs %q, %q and %q", a, b, c)
	}
}

func chain(i *Identity) []*x509.Certificate { return []*x509.Certificate{i.certificate.Leaf} }
