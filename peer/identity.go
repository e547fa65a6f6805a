package peer

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"math/big"
	"time"
)

// An Identity is a key that a process makes at its start and keeps to itself. Nodes that publish
// the fingerprints of their identities where they all look need no certificate authority:
// each stream is TLS with keys of which [Options].Verify knows the fingerprints.
type Identity struct {
	certificate tls.Certificate
	fingerprint string
}

// NewIdentity makes a key at random.
func NewIdentity() (*Identity, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	// The certificate only carries the key: no one verifies what it says.
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Unix(0, 0),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // RFC 5280: no expiration
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
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
// other side, so Options.Verify must be set, and compare [Fingerprint].
func (i *Identity) TLS() *tls.Config {
	return &tls.Config{
		Certificates:       []tls.Certificate{i.certificate},
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) != 1 {
				return errors.New("peer: the other side did not send one key")
			}
			return nil
		},
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
