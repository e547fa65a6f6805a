package peer

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"
)

// ErrSharedKeys is in the error of a stream to a node that has none of the shared keys of
// [NewIdentityFor]: another one, or none.
var ErrSharedKeys = errors.New("peer: the other side proves none of the shared keys")

// MinKey is the length of the shortest key of [NewIdentityFor], in bytes. A node shows its
// certificate to any host that connects, so a key that can be guessed could be found from it.
const MinKey = 32

// NewIdentityFor makes a key at random, as [NewIdentity] does, with a certificate that proves the
// first of the shared keys. A node with it accepts only a certificate that proves one of the keys,
// and that [Options].Verify accepts. So shared keys can be changed by two deployments: add the new
// one at the end, and then put it first. Each has at least [MinKey] random bytes.
//
// The certificate names its shared key by [KeyID].
func NewIdentityFor(shared [][]byte) (*Identity, error) {
	if len(shared) == 0 {
		return nil, errors.New("peer: NewIdentityFor: no key is given")
	}
	pool := x509.NewCertPool()
	ids := make([]string, len(shared))
	var first *x509.Certificate
	var signer ed25519.PrivateKey
	for i, key := range shared {
		root, private, err := authorityOf(key)
		if err != nil {
			return nil, fmt.Errorf("peer: NewIdentityFor: key %d: %w", i+1, err)
		}
		if pool.AddCert(root); i == 0 {
			first, signer = root, private
		}
		ids[i] = hex.EncodeToString(root.SubjectKeyId)
	}
	i, err := newIdentity(first, signer)
	if err != nil {
		return nil, err
	}
	i.verify = func(c *x509.Certificate) error {
		_, err := c.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		if err != nil {
			its := "it has none"
			if id := c.AuthorityKeyId; len(id) > 0 { // a stranger's may be long
				its = "its key has the ID " + strconv.Quote(hex.EncodeToString(id[:min(len(id), 20)]))
			}
			return fmt.Errorf("%w %s: %s: give all nodes the same keys", ErrSharedKeys, strings.Join(ids, ", "), its)
		}
		return nil
	}
	return i, nil
}

// KeyID returns the ID of a shared key of [NewIdentityFor], 16 hexadecimal digits: errors and
// certificates name it so. The ID does not tell the key.
func KeyID(shared []byte) (string, error) {
	root, _, err := authorityOf(shared)
	if err != nil {
		return "", fmt.Errorf("peer: KeyID: %w", err)
	}
	return hex.EncodeToString(root.SubjectKeyId), nil
}

// authorityOf returns the certificate authority that derives from a shared key: all nodes with the
// key have the same one.
func authorityOf(shared []byte) (*x509.Certificate, ed25519.PrivateKey, error) {
	if len(shared) < MinKey {
		return nil, nil, fmt.Errorf("has %d bytes, must have at least %d random ones", len(shared), MinKey)
	}
	seed, err := hkdf.Key(sha256.New, shared, nil, "holdfast peers", ed25519.SeedSize)
	if err != nil {
		return nil, nil, err
	}
	private := ed25519.NewKeyFromSeed(seed)
	public := private.Public()
	sum := sha256.Sum256(public.(ed25519.PublicKey))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "holdfast"}, SubjectKeyId: sum[:8],
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotBefore: always, NotAfter: forever,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return cert, private, err
}

// The validity of certificates that do not expire: RFC 5280, section 4.1.2.5.
var always, forever = time.Unix(0, 0), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// accept verifies the other side's certificate, as far as this package can.
func (i *Identity) accept(state tls.ConnectionState) error {
	if len(state.PeerCertificates) != 1 {
		return errors.New("peer: the other side did not send one key")
	}
	if i.verify == nil {
		return nil
	}
	return i.verify(state.PeerCertificates[0])
}
