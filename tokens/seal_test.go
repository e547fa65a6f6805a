package tokens_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/tokens"
	"github.com/holdfast-go/holdfast/tokens/storetest"
)

// newAEAD returns AES-256-GCM with a key of its own.
func newAEAD(t *testing.T, create func(cipher.Block) (cipher.AEAD, error)) cipher.AEAD {
	t.Helper()
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	a, err := create(block)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func seal(t *testing.T, s tokens.Store, aeads ...cipher.AEAD) *tokens.SealedStore {
	t.Helper()
	sealed, err := tokens.Seal(s, aeads...)
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func TestSealedStoreConforms(t *testing.T) {
	a, b := newAEAD(t, cipher.NewGCM), newAEAD(t, cipher.NewGCMWithRandomNonce)
	client := redistest.Start(t).Client(t)
	t.Run("memory", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) tokens.Store { return seal(t, tokens.NewMemoryStore(), a) })
	})
	t.Run("Redis", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) tokens.Store { return seal(t, tokens.NewRedisStore(client, t.Name()+":"), b, a) })
	})
	t.Run("twice", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) tokens.Store { return seal(t, seal(t, tokens.NewMemoryStore(), a), b) })
	})
	t.Run("with plain records", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) tokens.Store { return seal(t, tokens.NewMemoryStore(), b, a).AcceptPlain() })
	})
}

// keeperOn returns the Keeper of a process with that arbiter, provider and store.
func keeperOn(t *testing.T, arbiter *fallback.Memory, url string, store tokens.Store) *tokens.Keeper {
	t.Helper()
	locks, err := coord.New(context.Background(), arbiter, nil)
	if err != nil {
		t.Fatal(err)
	}
	k, err := tokens.New(locks, config(url), store, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		k.Close()
		_ = locks.Close(context.Background())
	})
	return k
}

// A copy of Redis's file shows no token.
func TestSeal_ADumpShowsNoToken(t *testing.T) {
	for name, sealed := range map[string]bool{"sealed": true, "plain": false} { // the latter: tokens would be found
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			client := redistest.Start(t, "--dir", dir, "--rdbcompression", "no").Client(t)
			var store tokens.Store = tokens.NewRedisStore(client, "tokens:")
			if sealed {
				store = seal(t, store, newAEAD(t, cipher.NewGCM))
			}
			k := keeperOn(t, fallback.NewMemory(), "http://127.0.0.1:1", store)
			login := &oauth2.Token{AccessToken: access, RefreshToken: refresh, Expiry: time.Now().Add(time.Hour)}
			if err := k.Replace(t.Context(), "alice", login); err != nil {
				t.Fatal(err)
			}
			if err := client.Save(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			dump, err := os.ReadFile(filepath.Join(dir, "dump.rdb"))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(dump, []byte("tokens:alice")) {
				t.Fatal("the record is not in the dump")
			}
			if found := shows(string(dump)); found == sealed {
				t.Errorf("a token was found: %v, want %v", found, !sealed)
			}
			if r, err := store.Load(t.Context(), "alice"); err != nil || r.RefreshToken.Reveal() != refresh {
				t.Errorf("got %+v, %v", r, err)
			}
		})
	}
}

// refused checks that the record does not open, and the error's text.
func refused(t *testing.T, s tokens.Store, account string) {
	t.Helper()
	r, err := s.Load(t.Context(), account)
	if !errors.Is(err, tokens.ErrSeal) || errors.Is(err, tokens.ErrNoAccount) || r != (tokens.Record{}) {
		t.Fatalf("got %+v, %v, want ErrSeal", r, err)
	}
	if text := err.Error(); !strings.Contains(text, `"`+account+`"`) || shows(text) || strings.Contains(text, "sealed:1") {
		t.Errorf("the error is %q", text)
	}
}

// A record that was moved to another account, in Redis, is refused; the provider gets nothing.
func TestSeal_AMovedRecordIsRefused(t *testing.T) {
	p, arbiter := newProvider(), fallback.NewMemory()
	provider := httptest.NewServer(p)
	defer provider.Close()
	client := redistest.Start(t).Client(t)
	store := seal(t, tokens.NewRedisStore(client, "tokens:"), newAEAD(t, cipher.NewGCM))
	login := keeperOn(t, arbiter, provider.URL, store)
	for _, account := range []string{"alice", "mallory"} {
		if err := login.Replace(t.Context(), account, expired()); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Copy(t.Context(), "tokens:alice", "tokens:mallory", 0, true).Err(); err != nil {
		t.Fatal(err)
	}
	refused(t, store, "mallory")
	k := keeperOn(t, arbiter, provider.URL, store)
	if got, err := k.Token(t.Context(), "mallory"); !errors.Is(err, tokens.ErrSeal) || errors.Is(err, tokens.ErrNoAccount) {
		t.Errorf("got %v, %v, want ErrSeal", got, err)
	}
	p.want(t, 0)
	if err := k.Replace(t.Context(), "mallory", expired()); err != nil { // a new login mends it
		t.Fatal(err)
	}
	if got, err := k.Token(t.Context(), "mallory"); err != nil || got.AccessToken != "a2" {
		t.Errorf("after a login: %v, %v", got, err)
	}
	p.want(t, 1)
}

// A stored record cannot be changed without being noticed.
func TestSeal_AChangedRecordIsRefused(t *testing.T) {
	for name, change := range map[string]func(*tokens.Record){
		"a later version": func(r *tokens.Record) { r.Fence++ },
		"a later step":    func(r *tokens.Record) { r.Step++ },
		"another text": func(r *tokens.Record) {
			text := []byte(r.RefreshToken.Reveal())
			text[len(text)/2] ^= 1
			r.RefreshToken = tokens.NewSecret(string(text))
		},
		"cut":          func(r *tokens.Record) { r.RefreshToken = tokens.NewSecret(r.RefreshToken.Reveal()[:25]) },
		"no text":      func(r *tokens.Record) { r.RefreshToken = tokens.NewSecret("holdfast:sealed:1:") },
		"no base64":    func(r *tokens.Record) { r.RefreshToken = tokens.NewSecret("holdfast:sealed:1:%") },
		"a plain one":  func(r *tokens.Record) { *r = secretRecord(r.Fence) },
		"access token": func(r *tokens.Record) { r.AccessToken, r.RefreshToken = tokens.NewSecret(access), tokens.Secret{} },
	} {
		t.Run(name, func(t *testing.T) {
			inner := tokens.NewMemoryStore()
			store := seal(t, inner, newAEAD(t, cipher.NewGCM), newAEAD(t, cipher.NewGCMWithRandomNonce))
			if err := store.Save(t.Context(), "alice", secretRecord(7)); err != nil {
				t.Fatal(err)
			}
			r, err := inner.Load(t.Context(), "alice")
			if err != nil {
				t.Fatal(err)
			}
			change(&r)
			if err := inner.Save(t.Context(), "alice", r); err != nil {
				t.Fatal(err)
			}
			refused(t, store, "alice")
		})
	}
}

func TestSeal_Rotation(t *testing.T) {
	older, newer := newAEAD(t, cipher.NewGCM), newAEAD(t, cipher.NewGCMWithRandomNonce)
	inner := tokens.NewMemoryStore()
	before, both, after := seal(t, inner, older), seal(t, inner, newer, older), seal(t, inner, newer)
	load := func(s tokens.Store, account string, want tokens.Record) {
		t.Helper()
		if r, err := s.Load(t.Context(), account); err != nil || r != want {
			t.Errorf("got %+v, %v, want %+v", r, err, want)
		}
	}
	for _, account := range []string{"alice", "bob"} {
		if err := before.Save(t.Context(), account, secretRecord(7)); err != nil {
			t.Fatal(err)
		}
		load(both, account, secretRecord(7))
		refused(t, after, account)
	}
	if err := both.Save(t.Context(), "alice", secretRecord(8)); err != nil { // as a refresh does
		t.Fatal(err)
	}
	if err := both.Reseal(t.Context(), "bob"); err != nil {
		t.Fatal(err)
	}
	load(after, "alice", secretRecord(8))
	load(after, "bob", secretRecord(7))
	refused(t, before, "alice")
	if err := both.Reseal(t.Context(), "nobody"); !errors.Is(err, tokens.ErrNoAccount) {
		t.Errorf("Reseal of no account: %v", err)
	}
}

// A record that is saved while Reseal runs stays.
func TestSeal_ResealBesideASave(t *testing.T) {
	inner := &hooked{Store: tokens.NewMemoryStore()}
	store := seal(t, inner, newAEAD(t, cipher.NewGCM))
	if err := store.Save(t.Context(), "alice", secretRecord(7)); err != nil {
		t.Fatal(err)
	}
	inner.loaded = func() {
		inner.loaded = nil
		if err := store.Save(t.Context(), "alice", secretRecord(8)); err != nil {
			t.Error(err)
		}
	}
	if err := store.Reseal(t.Context(), "alice"); err != nil {
		t.Error(err)
	}
	if r, err := store.Load(t.Context(), "alice"); err != nil || r != secretRecord(8) {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestSeal_PlainRecordsOfBefore(t *testing.T) {
	p, arbiter := newProvider(), fallback.NewMemory()
	provider := httptest.NewServer(p)
	defer provider.Close()
	client := redistest.Start(t).Client(t)
	plain := tokens.NewRedisStore(client, "tokens:")
	sealed := seal(t, plain, newAEAD(t, cipher.NewGCM))
	for _, account := range []string{"alice", "bob"} {
		if err := keeperOn(t, arbiter, provider.URL, plain).Replace(t.Context(), account, expired()); err != nil {
			t.Fatal(err)
		}
		refused(t, sealed, account)
	}
	if got, err := keeperOn(t, arbiter, provider.URL, sealed.AcceptPlain()).Token(t.Context(), "alice"); err != nil || got.AccessToken != "a2" {
		t.Errorf("got %v, %v", got, err)
	}
	if err := sealed.AcceptPlain().Reseal(t.Context(), "bob"); err != nil {
		t.Fatal(err)
	}
	for account, want := range map[string]string{"alice": "a2", "bob": "a1"} {
		if r, err := sealed.Load(t.Context(), account); err != nil || r.AccessToken.Reveal() != want {
			t.Errorf("%s: got %+v, %v", account, r, err)
		}
		// A process that does not seal yet says so, and does not take a sealed text for a refresh
		// token.
		k := keeperOn(t, arbiter, provider.URL, plain)
		if got, err := k.Token(t.Context(), account); !errors.Is(err, tokens.ErrSeal) {
			t.Errorf("%s without Seal: %v, %v, want ErrSeal", account, got, err)
		}
	}
	p.want(t, 1)
}

func TestSeal_BadInput(t *testing.T) {
	a, store := newAEAD(t, cipher.NewGCM), tokens.NewMemoryStore()
	short := newAEAD(t, func(b cipher.Block) (cipher.AEAD, error) { return cipher.NewGCMWithNonceSize(b, 8) })
	for want, err := range map[string]error{
		"store":            second(tokens.Seal(nil, a)),
		"no AEAD":          second(tokens.Seal(store)),
		"AEAD 1 is nil":    second(tokens.Seal(store, a, nil)),
		"nonces of 8 byte": second(tokens.Seal(store, short)),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want something about %s", err, want)
		}
	}
}
