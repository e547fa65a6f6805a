package peer

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"math/big"
)

// An Identity is a key that a process makes at its start and keeps to itself. Nodes that publish
// the fingerprints of their identities where they all look need no certificate authority: each
// stream is TLS with keys, and [Options].Verify knows their fingerprints.
type Identity struct {
	certificate tls.Certificate
	fingerprint string
	verify      func(*x509.Certificate) error // nil: nothing but the key counts
}

// NewIdentity makes a key at random.
func NewIdentity() (*Identity, error) { return newIdentity(nil, nil) }

// newIdentity makes a key at random. Its certificate is signed by an authority, or by itself if
// that is nil: it only carries the key then, and no node verifies its other contents.
func newIdentity(authority *x509.Certificate, signer ed25519.PrivateKey) (*Identity, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: always, NotAfter: forever}
	if authority == nil {
		authority, signer = template, private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, public, signer)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Identity{
		certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: cert},
		fingerprint: fingerprint(cert),
	}, nil
}

// Fingerprint returns the fingerprint of the key: 43 characters of the URL-safe base64
// alphabet.
func (i *Identity) Fingerprint() string { return i.fingerprint }

// TLS returns a configuration for [Options].TLS with this key. It accepts every key of the
// other side, with [NewIdentityFor] those that prove a shared key. So Options.Verify must be
// set, and compare [Fingerprint].
func (i *Identity) TLS() *tls.Config {
	return &tls.Config{
		Certificates:       []tls.Certificate{i.certificate},
		InsecureSkipVerify: true,
		VerifyConnection:   i.accept,
	}
}

// Fingerprint returns the fingerprint of the key that the other side of a connection has
// proved to have; empty if it has proved none.
func Fingerprint(state *tls.ConnectionState) string {
	if len(state.PeerCertificates) == 0 {
		return ""
	}
	return fingerprint(state.PeerCertificates[0])
}

func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
