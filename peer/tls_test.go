package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"
)

// authority makes certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(tb testing.TB) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	a := &authority{key: key, pool: x509.NewCertPool()}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		tb.Fatal(err)
	}
	a.cert, _ = x509.ParseCertificate(der)
	a.pool.AddCert(a.cert)
	return a
}

// config returns a node's configuration with a certificate for the name "node".
func (a *authority) config(tb testing.TB) *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{"node"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, key.Public(), a.key)
	if err != nil {
		tb.Fatal(err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		RootCAs:      a.pool, ServerName: "node",
	}
}

func TestTLS(t *testing.T) {
	ca := newAuthority(t)
	up := make(chan *Stream, 1)
	back := make(chan uint64, 1)
	a := start(t, Options{Node: "a", TLS: ca.config(t), Key: []byte("a key, 16 bytes!"), Handler: handler{
		up:    func(s *Stream) { up <- s },
		frame: func(_ *Stream, f *Frame) { back <- f.Request },
	}})
	b := start(t, Options{Node: "b", TLS: ca.config(t), Key: []byte("a key, 16 bytes!"), Handler: echo})
	peers(a, b)
	s := await(t, up)
	if _, ok := s.conn.(*tls.Conn); !ok {
		t.Fatalf("%T", s.conn)
	}
	for i := range uint64(1000) {
		s.Send(&Frame{Kind: Ping, Request: i})
		if n := await(t, back); n != i {
			t.Fatal(n)
		}
	}
}

func TestTLSRefusals(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	bare := ca.config(t)
	bare.Certificates = nil
	stranger := other.config(t)
	stranger.RootCAs = ca.pool
	wrongName := ca.config(t)
	wrongName.ServerName = ""
	for _, c := range []struct {
		name              string
		dialler, listener *tls.Config
		line              string // in the listener's log
		dline             string // in the dialler's
	}{
		{"no certificate", bare, ca.config(t), "TLS", ""},
		{"certificate of others", stranger, ca.config(t), "TLS", ""},
		{"server of others", ca.config(t), stranger, "", "TLS"},
		{"server's name", wrongName, ca.config(t), "", "TLS"},
		{"listener without", ca.config(t), nil, "one side uses TLS", "one side uses TLS"},
		{"dialler without", nil, ca.config(t), "one side uses TLS", "one side uses TLS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			la, lb := newLogLines(), newLogLines()
			ea, eb := newEvents(t), newEvents(t)
			a := start(t, Options{Node: "a", TLS: c.dialler, Handler: ea, Logger: newLogger(la)})
			b := start(t, Options{Node: "b", TLS: c.listener, Handler: eb, Logger: newLogger(lb)})
			a.SetPeers(map[string]string{"b": b.Addr()})
			if c.line != "" {
				lb.await(t, c.line)
			}
			if c.dline != "" {
				la.await(t, c.dline)
			}
			a.Close()
			b.Close()
			if len(ea.ups)+len(eb.ups) != 0 {
				t.Error("a stream came up")
			}
		})
	}
}
