package tokens_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/oauth2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/tokens"
)

func TestARefusedTokenIsRefreshedOnce(t *testing.T) {
	bubble(t, func(w *world) {
		var all []*tokens.Keeper
		for range 4 {
			k, _ := w.keeper(nil)
			w.want(k, "a2")
			all = append(all, k)
		}
		time.Sleep(time.Minute)
		var work sync.WaitGroup
		for _, k := range all[1:] {
			for range 8 {
				work.Go(func() {
					k.Refused("alice", "a2")
					w.want(k, "a3")
					k.Refused("alice", "a2") // late: it is another one now
					w.want(k, "a3")
				})
			}
		}
		work.Wait()
		w.want(all[0], "a2") // it was not refused here
		all[0].Refused("alice", "a2")
		w.want(all[0], "a3")
		w.provider.want(w.T, 2)
	})
}

// A resource that refuses everything does not make the provider work without end.
func TestAYoungTokenIsNotRefused(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper(&tokens.Options{MinAge: time.Minute})
		for range 100 {
			got, err := k.Token(w.Context(), "alice")
			if err != nil {
				w.Fatal(err)
			}
			k.Refused("alice", got.AccessToken)
			time.Sleep(time.Second)
		}
		w.provider.want(w.T, 2)
		k.Refused("nobody", "a2")
		k.Refused("alice", "nobody's")
		w.provider.want(w.T, 2)
	})
}

// A provider may answer with the same access token: that is its opinion.
func TestTheProviderInsistsOnARefusedToken(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper(nil)
		w.provider.set(nil, func(rw http.ResponseWriter) bool {
			rw.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(rw, `{"access_token":"same","token_type":"Bearer","refresh_token":"r","expires_in":3600}`)
			return true
		})
		w.want(k, "same")
		time.Sleep(time.Minute)
		k.Refused("alice", "same")
		w.want(k, "same")
	})
}

// While a refused token cannot be refreshed it is not handed out.
func TestARefusedTokenIsNotHandedOut(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper(nil)
		w.want(k, "a2")
		time.Sleep(time.Minute)
		w.provider.set(func(*http.Request) (int, string) { return 429, "slow_down" }, nil)
		k.Refused("alice", "a2")
		if got, err := k.Token(w.Context(), "alice"); err == nil {
			w.Errorf("got %v", got)
		}
		w.provider.set(nil, nil)
		time.Sleep(backoff)
		w.want(k, "a3")
		w.provider.want(w.T, 3)
	})
}

func TestTheProviderIsLeftAlone(t *testing.T) {
	for name, later := range map[string]func() string{
		"seconds": func() string { return "30" },
		"date":    func() string { return time.Now().Add(30 * time.Second).UTC().Format(http.TimeFormat) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				k, _ := w.keeper(nil)
				w.provider.later = later()
				w.provider.set(func(*http.Request) (int, string) { return 429, "slow_down" }, nil)
				for range 10 {
					if p, ok := errors.AsType[*oauth2.RetrieveError](second(k.Token(w.Context(), "alice"))); !ok || p.Response.StatusCode != http.StatusTooManyRequests {
						w.Errorf("got %v", p)
					}
					time.Sleep(2 * time.Second)
				}
				w.provider.want(w.T, 1)
				w.provider.set(nil, nil)
				time.Sleep(11 * time.Second)
				w.want(k, "a2")
				w.provider.want(w.T, 2)
			})
		})
	}
	t.Run("but a login elsewhere is seen", func(t *testing.T) {
		bubble(t, func(w *world) {
			k, _ := w.keeper(nil)
			other, _ := w.keeper(nil)
			w.provider.later = "3600"
			w.provider.set(func(*http.Request) (int, string) { return 429, "slow_down" }, nil)
			_, _ = k.Token(w.Context(), "alice")
			login := &oauth2.Token{AccessToken: "new", RefreshToken: "new", Expiry: time.Now().Add(time.Hour)}
			if err := other.Replace(w.Context(), "alice", login); err != nil {
				w.Fatal(err)
			}
			time.Sleep(backoff)
			w.want(k, "new")
		})
	})
	t.Run("also if many other accounts are used meanwhile", func(t *testing.T) {
		bubble(t, func(w *world) {
			k, _ := w.keeper(nil)
			w.provider.later = "30"
			w.provider.set(func(*http.Request) (int, string) { return 429, "slow_down" }, nil)
			_, _ = k.Token(w.Context(), "alice")
			time.Sleep(backoff)
			for i := range 200 {
				_, _ = k.Token(w.Context(), fmt.Sprint("nobody", i))
			}
			_, _ = k.Token(w.Context(), "alice")
			w.provider.want(w.T, 1)
		})
	})
	for _, later := range []string{"2000000000", "99999999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		t.Run("for an hour at most: "+later, func(t *testing.T) {
			bubble(t, func(w *world) {
				k, _ := w.keeper(nil)
				w.provider.later = later
				w.provider.set(func(*http.Request) (int, string) { return 429, "slow_down" }, nil)
				_, _ = k.Token(w.Context(), "alice")
				w.provider.set(nil, nil)
				time.Sleep(time.Hour)
				w.want(k, "a2")
			})
		})
	}
}

func TestForget(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper(nil)
		other, _ := w.keeper(nil)
		w.want(k, "a2")
		w.want(other, "a2")
		if err := k.Forget(w.Context(), "alice"); err != nil {
			w.Fatal(err)
		}
		w.wantError(k, tokens.ErrNoAccount)
		w.want(other, "a2") // until it is time to refresh it
		if r, err := w.store.Load(w.Context(), "alice"); err != nil || !r.Empty() {
			w.Errorf("stored: %+v, %v", r, err)
		}
		time.Sleep(time.Hour - 11*time.Second) // it is still valid
		w.want(other, "a2")
		synctest.Wait()
		w.wantError(other, tokens.ErrNoAccount)
		w.wantError(k, tokens.ErrNoAccount)
		w.provider.want(w.T, 1)
		login := &oauth2.Token{AccessToken: "new", RefreshToken: "new", Expiry: time.Now().Add(time.Hour)}
		if err := k.Replace(w.Context(), "alice", login); err != nil {
			w.Fatal(err)
		}
		w.want(k, "new")
		time.Sleep(backoff)
		w.want(other, "new")
		if err := k.Forget(w.Context(), ""); !errors.Is(err, tokens.ErrAccount) {
			w.Errorf("got %v", err)
		}
	})
}

// Tokens that another process has forgotten do not stay in the memory of this one, not even those
// that the store had not taken.
func TestForgottenSecretsDoNotStay(t *testing.T) {
	for name, gone := range map[string]func(*world, *tokens.Keeper){
		"forgotten": func(w *world, other *tokens.Keeper) {
			if err := other.Forget(w.Context(), "alice"); err != nil {
				w.Error(err)
			}
		},
		"lost": func(w *world, _ *tokens.Keeper) { w.store.Store = tokens.NewMemoryStore() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				k, _ := w.keeper(&tokens.Options{SaveTimeout: time.Second})
				other, _ := w.keeper(nil)
				broken := errors.New("broken")
				w.store.refuse("a2", broken)
				w.wantError(k, broken)
				if m := tokens.Memory(k, "alice"); !strings.Contains(m, "r2") || strings.Contains(m, "r1") {
					w.Errorf("remembered: %s", m) // the token that is not stored, and no other
				}
				w.store.set(nil, nil)
				gone(w, other)
				time.Sleep(backoff)
				w.wantError(k, tokens.ErrNoAccount)
				if m := tokens.Memory(k, "alice"); regexp.MustCompile(`\b[ar][12]\b`).MatchString(m) {
					w.Errorf("remembered: %s", m)
				}
				w.provider.want(w.T, 1)
			})
		})
	}
}

// A process that was stopped in the middle of a refresh does not bring a forgotten account back.
func TestALateAnswerDoesNotUndoForget(t *testing.T) {
	bubble(t, func(w *world) {
		k, locks := w.keeper(nil)
		other, _ := w.keeper(nil)
		proceed := make(chan struct{})
		w.provider.set(func(*http.Request) (int, string) { <-proceed; return 0, "" }, nil)
		var work sync.WaitGroup
		work.Go(func() { w.wantError(k, tokens.ErrSuperseded) })
		synctest.Wait()
		now, cancel := context.WithCancel(w.Context())
		cancel()
		_ = locks.Close(now) // its lock is lost
		if err := other.Forget(w.Context(), "alice"); err != nil {
			w.Fatal(err)
		}
		close(proceed)
		work.Wait()
		time.Sleep(backoff)
		w.wantError(k, tokens.ErrNoAccount)
		w.wantError(other, tokens.ErrNoAccount)
	})
}

// api is a resource that takes one access token.
func api(t *testing.T, token string) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprintf(w, "%s with %s", body, r.Header.Get("Authorization"))
	}))
	t.Cleanup(s.Close)
	return s
}

func TestTransport(t *testing.T) {
	for name, x := range map[string]struct {
		body   io.Reader
		status int
	}{
		"no body":                       {nil, 200},
		"a body in memory":              {strings.NewReader("text"), 200},
		"a body that cannot be resent":  {io.MultiReader(strings.NewReader("text")), 401},
		"http.NoBody":                   {http.NoBody, 200},
		"an empty body that is unknown": {io.MultiReader(), 401},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider()
			provider := httptest.NewServer(p)
			defer provider.Close()
			k := alone(t, provider.URL, &tokens.Options{HTTPClient: provider.Client(), MinAge: time.Microsecond})
			s := api(t, "a3")
			client := &http.Client{Transport: transport(t, k, s)}
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, x.body)
			if err != nil {
				t.Fatal(err)
			}
			for i, status := range []int{x.status, 200} { // the next request has the new token in any case
				res, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if err != nil || res.StatusCode != status {
					t.Errorf("request %d: %d %q, %v, want %d", i, res.StatusCode, got, err, status)
				}
				if want := "text with Bearer a3"; name == "a body in memory" && string(got) != want {
					t.Errorf("request %d: %q, want %q", i, got, want)
				}
				if r, err = http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader("text")); err != nil {
					t.Fatal(err)
				}
			}
			if r.Header.Get("Authorization") != "" {
				t.Error("the caller's request was changed")
			}
			p.want(t, 2)
		})
	}
}

// Where there is no other token, the resource is not asked again.
func TestTransportHasNoOtherToken(t *testing.T) {
	p := newProvider()
	provider := httptest.NewServer(p)
	defer provider.Close()
	k := alone(t, provider.URL, &tokens.Options{HTTPClient: provider.Client()}) // MinAge is more than the test takes
	var requests atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer s.Close()
	client := &http.Client{Transport: transport(t, k, s)}
	res, err := client.Post(s.URL, "text/plain", strings.NewReader("text"))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusUnauthorized || requests.Load() != 1 {
		t.Errorf("status %d after %d requests", res.StatusCode, requests.Load())
	}
	p.want(t, 1)
}

// A resource that refuses a token need not come to an end before it gets the next one.
func TestTransportDoesNotWaitForTheEndOfARefusal(t *testing.T) {
	p := newProvider()
	provider := httptest.NewServer(p)
	defer provider.Close()
	k := alone(t, provider.URL, &tokens.Options{HTTPClient: provider.Client(), MinAge: time.Microsecond})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer a3" {
			return
		}
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, "and so on, ")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Client{Transport: transport(t, k, s)}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK || ctx.Err() != nil {
		t.Errorf("status %d, %v", res.StatusCode, ctx.Err())
	}
}

// closed notes that it was closed.
type closed struct {
	io.Reader
	closed bool
}

func (c *closed) Close() error { c.closed = true; return nil }

func TestTransportWithoutAToken(t *testing.T) {
	locks, err := coord.New(context.Background(), fallback.NewMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(context.Background())
	k, err := tokens.New(locks, config("http://provider"), tokens.NewMemoryStore(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	body := &closed{Reader: strings.NewReader("text")}
	transport, err := k.Transport("nobody", nil, "http://api")
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://api", body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Client{Transport: transport}).Do(r)
	if err == nil {
		_ = res.Body.Close()
	}
	if !errors.Is(err, tokens.ErrNoAccount) || !body.closed {
		t.Errorf("got %v, closed %v", err, body.closed)
	}
}
