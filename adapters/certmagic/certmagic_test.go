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
	"github.com/holdfast-go/holdfast/internal/coordtest"
	"github.com/holdfast-go/holdfast/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// issuer signs certificates, and calls a function while it does.
type issuer struct {
	hook  func(ctx context.Context) error
	again bool // certmagic makes another attempt after an error of hook
}

func (i issuer) IssuerKey() string { return "test" }

func (i issuer) Issue(ctx context.Context, r *x509.CertificateRequest) (*lib.IssuedCertificate, error) {
	if err := i.hook(ctx); err != nil {
		if i.again {
			return nil, err
		}
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
	config, stop := configure(s, issuer{hook: hook})
	defer stop()
	return config.ObtainCertSync(ctx, host)
}

func configure(s lib.Storage, i lib.Issuer) (config *lib.Config, stop func()) {
	cache := lib.NewCache(lib.CacheOptions{GetConfigForCert: func(lib.Certificate) (*lib.Config, error) { return config, nil }})
	config = lib.New(cache, lib.Config{Storage: s, Issuers: []lib.Issuer{i}})
	return config, cache.Stop
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

// The lock is lost in the middle of the first attempt. certmagic has it again before the second
// one.
func TestStorage_LostBetweenAttempts(t *testing.T) {
	coordtest.Bubble(t, func(t *testing.T, m *fallback.Memory) {
		c, other := coordtest.Start(t, m, nil), coordtest.Start(t, m, nil)
		s, err := certmagic.Wrap(&lib.FileStorage{Path: t.TempDir()}, c)
		if err != nil {
			t.Fatal(err)
		}
		attempts := 0
		config, stop := configure(s, issuer{again: true, hook: func(ctx context.Context) error {
			held, err := c.Held(ctx, "")
			if err != nil || len(held.Keys) != 1 {
				t.Fatalf("in attempt %d it has %v, %v", attempts, held.Keys, err)
			}
			key := held.Keys[0].Key
			if attempts++; attempts == 1 {
				if err := c.Break(ctx, key, held.Keys[0].Fence, "the test"); err != nil {
					t.Error(err)
				}
				return errors.New("the authority does not answer")
			}
			if _, err := other.TryLock(ctx, key); !errors.Is(err, coord.ErrLocked) {
				t.Errorf("in attempt %d another process: %v", attempts, err)
			}
			return nil
		}})
		defer stop()
		if err := config.ObtainCertAsync(t.Context(), "example.com"); err != nil || attempts != 2 {
			t.Errorf("%d attempts: %v", attempts, err)
		}
	})
}

// A lock that was lost between two attempts is taken anew before the next one, if it is free. Each
// Lock has an Unlock: that of a caller whose lock was lost frees no other one's.
func TestRenewLockLease(t *testing.T) {
	c := adaptertest.Start(t, fallback.NewMemory(), nil)
	a, err := certmagic.Wrap(&lib.FileStorage{}, c)
	if err != nil {
		t.Fatal(err)
	}
	b, err := certmagic.Wrap(&lib.FileStorage{}, c)
	if err != nil {
		t.Fatal(err)
	}
	lose := func() {
		t.Helper()
		info, err := c.Inspect(t.Context(), "certmagic/n")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Break(t.Context(), "certmagic/n", info.Holder.Fence, "the test"); err != nil {
			t.Fatal(err)
		}
	}
	renew := func(want error) {
		t.Helper()
		if err := a.RenewLockLease(t.Context(), "n", time.Minute); !errors.Is(err, want) {
			t.Errorf("RenewLockLease: %v, want %v", err, want)
		}
	}
	locked := func(want bool) {
		t.Helper()
		ok, err := b.TryLock(t.Context(), "n")
		if ok == want || err != nil {
			t.Errorf("it is free: %t, %v", ok, err)
		}
		if ok {
			_ = b.Unlock(t.Context(), "n")
		}
	}
	renew(coord.ErrUnlocked)
	locked(false)
	if err := a.Lock(t.Context(), "n"); err != nil {
		t.Fatal(err)
	}
	renew(nil)
	lose()
	if err := b.Lock(t.Context(), "n"); err != nil {
		t.Fatal(err)
	}
	renew(coord.ErrLocked)
	if err := b.Unlock(t.Context(), "n"); err != nil {
		t.Error(err)
	}
	renew(nil)
	locked(true)
	lose()
	if err := a.Lock(t.Context(), "n"); err != nil { // another goroutine
		t.Fatal(err)
	}
	if err := a.Unlock(t.Context(), "n"); !errors.Is(err, coord.ErrLost) {
		t.Errorf("the first Unlock: %v", err)
	}
	locked(true)
	if err := a.Unlock(t.Context(), "n"); err != nil {
		t.Errorf("the second Unlock: %v", err)
	}
	locked(false)
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
