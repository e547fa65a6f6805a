package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/takes"
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
func (a *authority) config(tb testing.TB) *tls.Config { return a.configFor(tb, "node") }

// configFor returns a configuration with a certificate for a name.
func (a *authority) configFor(tb testing.TB, name string) *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{name},
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
	a := start(t, Options{Node: "a", TLS: ca.config(t), Handler: handler{
		up:    func(s *Stream) { up <- s },
		frame: func(_ *Stream, f *Frame) { back <- f.Request },
	}})
	b := start(t, Options{Node: "b", TLS: ca.config(t), Handler: echo})
	peers(a, b)
	s := await(t, up)
	if s.safe == nil {
		t.Fatal("no TLS")
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
	bare.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }
	bare.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return new(tls.Certificate), nil }
	stranger := other.config(t)
	stranger.RootCAs = ca.pool
	elsewhere := ca.configFor(t, "elsewhere")
	elsewhere.ServerName = "node"
	for _, c := range []struct {
		name              string
		dialler, listener *tls.Config
		line              string // in the listener's log
		dline             string // in the dialler's
	}{
		{"no certificate", bare, ca.config(t), "TLS", ""},
		{"certificate of others", stranger, ca.config(t), "TLS", ""},
		{"server of others", ca.config(t), stranger, "", "TLS"},
		{"server's name", ca.config(t), elsewhere, "", "TLS"},
		{"client's name", elsewhere, ca.config(t), "valid for elsewhere", ""},
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

// A certificate is good for its own node's name only, if the package above says so. The side
// that is refused learns no more than that.
func TestVerify(t *testing.T) {
	ca := newAuthority(t)
	up := make(chan *Stream, 1)
	la, lb := newLogLines(), newLogLines()
	verify := func(node string, state *tls.ConnectionState) error {
		if node != "a" && node != "b" || len(state.PeerCertificates) == 0 {
			return errors.New("its session is not listed")
		}
		return nil
	}
	a := start(t, Options{Node: "a", TLS: ca.config(t), Verify: verify, Logger: newLogger(la), Handler: handler{up: func(s *Stream) { up <- s }}})
	c := start(t, Options{Node: "c", TLS: ca.config(t), Namespace: "secret", Logger: newLogger(lb)})
	c.SetPeers(map[string]string{"a": a.Addr()})
	la.await(t, "its session is not listed")
	// At first the session may just not be known everywhere.
	if line := await(t, lb.c); !strings.HasPrefix(line, "holdfast: no stream with the node yet ") || !strings.Contains(line, "not a member") || strings.Contains(line, "listed") {
		t.Error(line)
	}
	lb.await(t, "holdfast: no stream with the node node=a")
	b := start(t, Options{Node: "b", TLS: ca.config(t), Verify: verify})
	b.SetPeers(map[string]string{"a": a.Addr()})
	if s := await(t, up); s.Node() != "b" {
		t.Error(s)
	}
}

func TestTLSOptions(t *testing.T) {
	ca := newAuthority(t)
	for name, spoil := range map[string]func(*tls.Config){
		"no certificate":     func(c *tls.Config) { c.Certificates = nil },
		"no RootCAs":         func(c *tls.Config) { c.RootCAs = nil },
		"no ServerName":      func(c *tls.Config) { c.ServerName = "" },
		"MaxVersion TLS 1.2": func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 },
		"InsecureSkipVerify": func(c *tls.Config) { c.InsecureSkipVerify = true },
		"set the name": func(c *tls.Config) { // package tls dials with neither
			c.ServerName, c.VerifyConnection = "", func(tls.ConnectionState) error { return nil }
		},
		"GetConfigForClient": func(c *tls.Config) {
			c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }
		},
	} {
		cfg := ca.config(t)
		spoil(cfg)
		_, err := Start(Options{Node: "a", Handler: handler{}, TLS: cfg})
		if e, ok := errors.AsType[*OptionError](err); !ok || e.Option != "TLS" || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := Start(Options{Node: "a", Handler: handler{}, Verify: func(string, *tls.ConnectionState) error { return nil }})
	if e, ok := errors.AsType[*OptionError](err); !ok || e.Option != "Verify" {
		t.Errorf("Verify without TLS: %v", err)
	}
	_, err = Start(Options{Node: "a", Handler: handler{}, Retry: 50})
	if e, ok := errors.AsType[*OptionError](err); !ok || e.Option != "Retry" || !strings.Contains(err.Error(), "is 50ns") {
		t.Errorf("a Retry of 50 ns: %v", err)
	}
}

// Large batches are many records, in both directions at once. The socket does not take some of them
// at once.
func TestTLSMuch(t *testing.T) {
	takes.Seconds(t)
	ca := newAuthority(t)
	up := make(chan *Stream, 1)
	const frames = 20_000
	back := make(chan uint64, frames)
	a := start(t, Options{Node: "a", TLS: ca.config(t), Handler: handler{
		up:    func(s *Stream) { up <- s },
		frame: func(_ *Stream, f *Frame) { back <- f.Request },
	}})
	b := start(t, Options{Node: "b", TLS: ca.config(t), Handler: echo})
	peers(a, b)
	s := await(t, up)
	key := make([]byte, MaxKey)
	for i := range uint64(frames) {
		if err := s.Send(&Frame{Kind: Ping, Request: i + 1, Key: key}); err != nil {
			t.Fatal(err)
		}
		if i >= 4000 { // some 4 MiB are under way
			if n := await(t, back); n != i-4000+1 {
				t.Fatalf("%d came in the place of %d", n, i-4000+1)
			}
		}
	}
	for i := range uint64(4000) {
		if n := await(t, back); n != frames-4000+i+1 {
			t.Fatalf("%d came in the place of %d", n, frames-4000+i+1)
		}
	}
}
