package peer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// issue writes a certificate for a name, good for these uses, its key and the root into dir.
func (a *authority) issue(tb testing.TB, dir, name string, uses ...x509.ExtKeyUsage) (cert, key, roots string) {
	tb.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(3), DNSNames: []string{name}, ExtKeyUsage: uses,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, k.Public(), a.key)
	if err != nil {
		tb.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		tb.Fatal(err)
	}
	write := func(file, kind string, der []byte) string {
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			tb.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secret), write("roots.pem", "CERTIFICATE", a.cert.Raw)
}

var bothUses = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}

// files returns the configuration that Files makes of a new certificate.
func (a *authority) files(tb testing.TB, name string, uses ...x509.ExtKeyUsage) *tls.Config {
	tb.Helper()
	cert, key, roots := a.issue(tb, tb.TempDir(), name, uses...)
	c, err := Files(cert, key, roots, "node")
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func TestFiles(t *testing.T) {
	ca := newAuthority(t)
	for _, c := range []struct {
		name    string
		dialler *tls.Config
		ok      bool
	}{
		{"both uses", ca.files(t, "node", bothUses...), true},
		{"another name", ca.files(t, "elsewhere", bothUses...), false},
		{"client only", ca.files(t, "node", x509.ExtKeyUsageClientAuth), false},
		{"another root", newAuthority(t).files(t, "node", bothUses...), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			lines := newLogLines()
			e := newEvents(t)
			a := start(t, Options{Node: "a", TLS: c.dialler})
			b := start(t, Options{Node: "b", TLS: ca.files(t, "node", bothUses...), Handler: e, Logger: newLogger(lines)})
			a.SetPeers(map[string]string{"b": b.Addr()})
			if c.ok {
				await(t, e.ups)
				return
			}
			lines.await(t, "TLS")
		})
	}
}

// Files that change are read again, and a file that cannot be read leaves the old contents in use.
func TestFilesReload(t *testing.T) {
	before, after := newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	cert, key, roots := before.issue(t, dir, "node", bothUses...)
	cfg, err := Files(cert, key, roots, "node")
	if err != nil {
		t.Fatal(err)
	}
	old, _ := cfg.GetCertificate(nil)
	if err := os.WriteFile(cert, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := cfg.GetCertificate(nil); err != nil || c != old {
		t.Errorf("a broken file: %v, %v", c, err)
	}
	after.issue(t, dir, "node", bothUses...)
	later := time.Now().Add(time.Minute) // a file system may keep times in seconds
	for _, path := range []string{cert, key, roots} {
		if err := os.Chtimes(path, later, later); err != nil {
			t.Fatal(err)
		}
	}
	e := newEvents(t)
	a := start(t, Options{Node: "a", TLS: cfg})
	b := start(t, Options{Node: "b", TLS: after.files(t, "node", bothUses...), Handler: e})
	a.SetPeers(map[string]string{"b": b.Addr()})
	await(t, e.ups)
	for _, bad := range [][4]string{{"no", key, roots, "node"}, {cert, "no", roots, "node"}, {cert, key, "no", "node"}, {cert, key, key, "node"}, {cert, key, roots, ""}} {
		if _, err := Files(bad[0], bad[1], bad[2], bad[3]); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
