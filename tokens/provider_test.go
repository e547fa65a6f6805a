package tokens_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/oauth2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/virtual"
	"github.com/holdfast-go/holdfast/tokens"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// provider rotates refresh tokens, and takes a used one for stolen.
type provider struct {
	life  time.Duration
	grace time.Duration // a used refresh token is accepted once more for so long

	mu       sync.Mutex // protects the fields below
	requests int
	current  int // number of the refresh token that is good; 0: none, all are revoked
	spent    time.Time
	replayed bool
	reuses   int
	before   func(*http.Request) (status int, code string) // instead of work, unless 0
	later    string                                        // Retry-After of that
	after    func(http.ResponseWriter) bool                // instead of an answer, if true
}

func newProvider() *provider { return &provider{life: time.Hour, current: 1} }

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	before, after, later := p.before, p.after, p.later
	p.requests++
	p.mu.Unlock()
	if before != nil {
		if status, code := before(r); status != 0 {
			if later != "" {
				w.Header().Set("Retry-After", later)
			}
			refuse(w, status, code)
			return
		}
	}
	n, ok := p.rotate(r.FormValue("refresh_token"))
	if after != nil && after(w) {
		return
	}
	if !ok {
		refuse(w, 400, "invalid_grant")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"access_token":"a%d","token_type":"Bearer","refresh_token":"r%d","expires_in":%d}`, n, n, int(p.life.Seconds())) // 0: not said
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": code})
}

func (p *provider) rotate(refresh string) (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.current == 0:
		return 0, false
	case refresh == fmt.Sprint("r", p.current):
		p.current++
		p.spent, p.replayed = time.Now(), false
		return p.current, true
	case refresh == fmt.Sprint("r", p.current-1) && !p.replayed && time.Since(p.spent) < p.grace:
		p.current++
		p.replayed = true
		return p.current, true
	}
	p.reuses++
	p.current = 0
	return 0, false
}

func (p *provider) set(before func(*http.Request) (int, string), after func(http.ResponseWriter) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before, p.after = before, after
}

// want compares the number of requests, and that of reused refresh tokens with 0.
func (p *provider) want(t *testing.T, requests int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.requests != requests || p.reuses != 0 {
		t.Errorf("the provider got %d requests, want %d; %d with used refresh tokens", p.requests, requests, p.reuses)
	}
}

// RoundTrip makes it a transport for bubbles, where there is no network. The client does not wait
// for longer than ctx.
func (p *provider) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		p.ServeHTTP(w, r)
	}()
	select {
	case broken := <-done:
		if broken != nil {
			return nil, fmt.Errorf("connection reset: %v", broken)
		}
		return w.Result(), nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func config(url string) *oauth2.Config {
	return &oauth2.Config{ClientID: "id", ClientSecret: "secret", Endpoint: oauth2.Endpoint{TokenURL: url, AuthStyle: oauth2.AuthStyleInParams}}
}

// world is a bubble with a provider, an arbiter, a store, and the account "alice", whose token has
// expired.
type world struct {
	*testing.T
	provider *provider
	arbiter  *fallback.Memory
	store    *hooked
}

func bubble(t *testing.T, f func(w *world)) {
	t.Helper()
	virtual.Test(t, func(t *testing.T) {
		// A bubble begins in 2000, where epochs count from: its clock is moved on, so that epochs
		// are as large as in earnest.
		time.Sleep(time.Until(time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)))
		w := &world{t, newProvider(), fallback.NewMemory(), &hooked{Store: tokens.NewMemoryStore()}}
		k, _ := w.keeper(nil)
		old := &oauth2.Token{AccessToken: "a1", TokenType: "Bearer", RefreshToken: "r1", Expiry: time.Now().Add(time.Hour)}
		if err := k.Replace(t.Context(), "alice", old); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		f(w)
	})
}

// keeper returns a process's.
func (w *world) keeper(opts *tokens.Options) (*tokens.Keeper, *coord.Coordinator) {
	w.Helper()
	locks, err := coord.New(context.Background(), w.arbiter, &coord.Options{
		SessionTTL: 10 * time.Minute, RenewEvery: 150 * time.Second, Partitions: 31, // for hours go by
	})
	if err != nil {
		w.Fatal(err)
	}
	var o tokens.Options
	if opts != nil {
		o = *opts
	}
	o.HTTPClient = &http.Client{Transport: w.provider}
	k, err := tokens.New(locks, config("http://provider/token"), w.store, &o)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		k.Close()
		_ = locks.Close(context.Background())
	})
	return k, locks
}

// hooked is a store that does something before and after each Save.
type hooked struct {
	tokens.Store
	mu     sync.Mutex // protects the fields below
	loads  int
	loaded func() // after a Load
	before func(tokens.Record) error
	after  func(tokens.Record) error
}

func (s *hooked) set(before, after func(tokens.Record) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.after = before, after
}

// refuse makes the store refuse one access token.
func (s *hooked) refuse(token string, err error) {
	s.set(func(r tokens.Record) error {
		if r.AccessToken.Reveal() == token {
			return err
		}
		return nil
	}, nil)
}

func (s *hooked) Load(ctx context.Context, account string) (tokens.Record, error) {
	s.mu.Lock()
	s.loads++
	loaded := s.loaded
	s.mu.Unlock()
	r, err := s.Store.Load(ctx, account)
	if loaded != nil {
		loaded()
	}
	return r, err
}

func (s *hooked) Save(ctx context.Context, account string, r tokens.Record) error {
	s.mu.Lock()
	before, after := s.before, s.after
	s.mu.Unlock()
	if before != nil {
		if err := before(r); err != nil {
			return err
		}
	}
	if err := s.Store.Save(ctx, account, r); err != nil {
		return err
	}
	if after != nil {
		return after(r)
	}
	return nil
}
