package certmagic_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"testing"
	"time"

	lib "github.com/caddyserver/certmagic"

	"github.com/holdfast-go/holdfast/adapters/adaptertest"
	"github.com/holdfast-go/holdfast/adapters/adaptertest/processtest"
	"github.com/holdfast-go/holdfast/adapters/certmagic"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// issuer signs certificates, and calls a function while it does.
type issuer struct {
	hook func(ctx context.Context) error
}

func (i issuer) IssuerKey() string { return "test" }

func (i issuer) Issue(ctx context.Context, r *x509.CertificateRequest) (*lib.IssuedCertificate, error) {
	if err := i.hook(ctx); err != nil {
		return nil, lib.ErrNoRetry{Err: err}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: r.DNSNames, NotBefore: time.Now(), NotAfter: time.Now().AddDate(0, 0, 90)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, r.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &lib.IssuedCertificate{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, nil
}

// obtain makes certmagic obtain a certificate for a host, in a storage without one.
func obtain(ctx context.Context, dir string, c *coord.Coordinator, host string, hook func(context.Context) error) error {
	s, err := certmagic.Wrap(&lib.FileStorage{Path: dir}, c)
	if err != nil {
		return err
	}
	var config *lib.Config
	cache := lib.NewCache(lib.CacheOptions{GetConfigForCert: func(lib.Certificate) (*lib.Config, error) { return config, nil }})
	defer cache.Stop()
	config = lib.New(cache, lib.Config{Storage: s, Issuers: []lib.Issuer{issuer{hook}}})
	return config.ObtainCertSync(ctx, host)
}

func section(t *testing.T, c *coord.Coordinator, key string, section func(context.Context) error) error {
	return obtain(t.Context(), t.TempDir(), c, key+".example.com", section)
}

func TestStorage(t *testing.T) {
	adaptertest.Run(t, adaptertest.Fixture{Untold: true, Section: section})
}

func TestStorage_Processes(t *testing.T) { processtest.Run(t, section) }

func TestTryLock(t *testing.T) {
	m := fallback.NewMemory()
	a, err := certmagic.Wrap(&lib.FileStorage{}, adaptertest.Start(t, m, nil))
	if err != nil {
		t.Fatal(err)
	}
	b, err := certmagic.Wrap(&lib.FileStorage{}, adaptertest.Start(t, m, nil))
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := a.TryLock(t.Context(), "n"); !ok || err != nil {
		t.Errorf("free: %t, %v", ok, err)
	}
	if ok, err := b.TryLock(t.Context(), "n"); ok || err != nil {
		t.Errorf("locked: %t, %v", ok, err)
	}
	if err := b.Unlock(t.Context(), "n"); !errors.Is(err, coord.ErrUnlocked) {
		t.Errorf("Unlock of the other one's: %v", err)
	}
	if err := a.Unlock(t.Context(), "n"); err != nil {
		t.Error(err)
	}
	if _, err := certmagic.Wrap(nil, nil); err == nil {
		t.Error("nil was accepted")
	}
}

func ExampleWrap() {
	locks, err := coord.New(context.Background(), fallback.NewMemory(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	storage, err := certmagic.Wrap(&lib.FileStorage{Path: "/var/lib/certs"}, locks)
	if err != nil {
		fmt.Println(err)
		return
	}
	lib.Default.Storage = storage
	fmt.Println(locks.Close(context.Background()))
	// Output: <nil>
}
