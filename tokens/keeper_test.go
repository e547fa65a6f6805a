package tokens_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/oauth2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/tokens"
)

// want asks for alice's token.
func (w *world) want(k *tokens.Keeper, access string) {
	w.Helper()
	got, err := k.Token(w.Context(), "alice")
	if err != nil || got.AccessToken != access {
		w.Errorf("Token: got %v, %v, want %s", got, err, access)
	}
}

// wantError asks for alice's token, and returns the error, which must be the one wanted.
func (w *world) wantError(k *tokens.Keeper, want error) error {
	w.Helper()
	got, err := k.Token(w.Context(), "alice")
	if got != nil || !errors.Is(err, want) {
		w.Errorf("Token: got %v, %v, want %v", got, err, want)
	}
	return err
}

// backoff is longer than Options.Backoff.
const backoff = 1001 * time.Millisecond

func TestOneRefreshPerExpiryInTheCluster(t *testing.T) {
	bubble(t, func(w *world) {
		const expiries = 50
		w.provider.life = time.Minute
		ctx, cancel := context.WithTimeout(w.Context(), expiries*time.Minute)
		defer cancel()
		var work sync.WaitGroup
		for range 8 {
			k, _ := w.keeper(nil)
			for i := range 32 {
				work.Go(func() {
					time.Sleep(time.Duration(i) * time.Millisecond)
					for ctx.Err() == nil {
						got, err := k.Token(w.Context(), "alice")
						if err != nil || !got.Expiry.After(time.Now()) || got.RefreshToken != "" {
							w.Errorf("got %+v, %v", got, err)
							return
						}
						time.Sleep(3 * time.Second)
					}
				})
			}
		}
		work.Wait()
		w.provider.mu.Lock()
		defer w.provider.mu.Unlock()
		if n := w.provider.requests; n < expiries || n > 2*expiries || w.provider.reuses != 0 {
			w.Errorf("%d refreshes in %d lives of a token; %d with used refresh tokens", n, expiries, w.provider.reuses)
		}
		if w.provider.current != w.provider.requests+1 {
			w.Errorf("%d requests made %d tokens", w.provider.requests, w.provider.current-1)
		}
	})
}

// Token says why its context has ended, also where that cause is one of the context package's.
func TestAnEndedContextAndItsCause(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper(nil)
		for _, why := range []error{errors.New("why"), fmt.Errorf("why: %w", context.Canceled)} {
			ctx, cancel := context.WithCancelCause(w.Context())
			cancel(why)
			if _, err := k.Token(ctx, "a"); !errors.Is(err, why) || !errors.Is(err, context.Canceled) {
				w.Errorf("%v is not %v", err, why)
			}
		}
	})
}

func TestATokenInUseCostsNoIO(t *testing.T) {
	bubble(t, func(w *world) {
		k, locks := w.keeper(nil)
		w.want(k, "a2")
		loads, calls := w.store.loads, locks.Stats().Calls[coord.OpLock]
		for range 1000 {
			w.want(k, "a2")
		}
		if w.store.loads != loads || locks.Stats().Calls[coord.OpLock] != calls {
			w.Errorf("%d loads, were %d", w.store.loads, loads)
		}
		w.provider.want(w.T, 1)
	})
}

// While one refreshes, the old token is good for everybody.
func TestNobodyWaitsForARefresh(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper(nil)
		other, _ := w.keeper(nil)
		w.want(k, "a2")
		w.want(other, "a2")
		proceed := make(chan struct{})
		w.provider.set(func(*http.Request) (int, string) { <-proceed; return 0, "" }, nil)
		time.Sleep(time.Hour - 11*time.Second) // Leeway, and a second
		begin := time.Now()
		for range 10 {
			w.want(k, "a2")
			w.want(other, "a2")
			synctest.Wait()
			late, _ := w.keeper(nil) // nor does a process that starts now
			w.want(late, "a2")
		}
		if d := time.Since(begin); d != 0 {
			w.Errorf("they waited for %v", d)
		}
		close(proceed)
		synctest.Wait()
		w.want(k, "a3")
		w.provider.want(w.T, 2)
		time.Sleep(2 * time.Second)
		w.want(other, "a3")
		w.provider.want(w.T, 2)
	})
}

// The moment between the provider's answer and the store's is the one that matters.
func TestATokenIsStoredBeforeItIsUsed(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper(&tokens.Options{SaveTimeout: 10 * time.Second})
		broken := errors.New("broken")
		w.store.refuse("a2", broken)
		begin := time.Now()
		w.wantError(k, broken)
		if d := time.Since(begin); d < 9*time.Second || d > 11*time.Second {
			w.Errorf("it tried for %v", d)
		}
		other, _ := w.keeper(nil)
		w.wantError(other, tokens.ErrInDoubt) // as far as others know
		w.store.set(nil, nil)
		time.Sleep(backoff)
		w.want(k, "a2") // it had kept the provider's answer
		time.Sleep(backoff)
		w.want(other, "a2")
		w.provider.want(w.T, 1)
		if r, err := w.store.Load(w.Context(), "alice"); err != nil || r.RefreshToken.Reveal() != "r2" || r.Spending.Fence != 0 {
			w.Errorf("stored: %+v, %v", r, err)
		}
	})
}

// A record that is kept for a store that fails must not be stored over a new login.
func TestWhatWasKeptIsDroppedAfterALogin(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper(&tokens.Options{SaveTimeout: time.Second})
		other, _ := w.keeper(nil)
		broken := errors.New("broken")
		w.store.refuse("a2", broken)
		w.wantError(k, broken)
		w.store.set(nil, nil)
		login := &oauth2.Token{AccessToken: "new", RefreshToken: "new", Expiry: time.Now().Add(time.Hour)}
		if err := other.Replace(w.Context(), "alice", login); err != nil {
			w.Fatal(err)
		}
		time.Sleep(backoff)
		w.want(k, "new")
		time.Sleep(time.Hour)
		w.wantError(k, tokens.ErrRejected) // this provider does not know "new"; it was asked
	})
}

// A record that was read before a login must not be taken for the one after it.
func TestALoginIsNotForgottenForAnOlderToken(t *testing.T) {
	bubble(t, func(w *world) {
		other, _ := w.keeper(nil)
		w.want(other, "a2")
		k, _ := w.keeper(nil)
		read, proceed := make(chan struct{}), make(chan struct{})
		w.store.loaded = func() { close(read); <-proceed }
		var work sync.WaitGroup
		work.Go(func() { w.want(k, "a2") })
		<-read
		login := &oauth2.Token{AccessToken: "a9", RefreshToken: "r9", Expiry: time.Now().Add(time.Hour)}
		if err := k.Replace(w.Context(), "alice", login); err != nil {
			w.Fatal(err)
		}
		w.store.loaded = nil
		close(proceed)
		work.Wait()
		w.want(k, "a9")
	})
}

// Nor is a token handed out that has expired, if that was read before the login.
func TestALoginDuringARead(t *testing.T) {
	bubble(t, func(w *world) {
		for name, login := range map[string]*oauth2.Token{
			"for long":      {AccessToken: "a8", RefreshToken: "r8", Expiry: time.Now().Add(time.Hour)},
			"due, but good": {AccessToken: "a9", RefreshToken: "r9", Expiry: time.Now().Add(11 * time.Second)},
		} {
			old := &oauth2.Token{AccessToken: "a1", RefreshToken: "r1", Expiry: time.Now()}
			k, _ := w.keeper(&tokens.Options{Leeway: time.Second})
			if err := k.Replace(w.Context(), "alice", old); err != nil {
				w.Fatal(err)
			}
			w.store.loaded = sync.OnceFunc(func() {
				if err := k.Replace(w.Context(), "alice", login); err != nil {
					w.Errorf("%s: %v", name, err)
				}
			})
			w.want(k, login.AccessToken)
			w.store.loaded = nil
		}
		w.provider.want(w.T, 0)
	})
}

func TestCallersMayLeave(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper(nil)
		w.provider.set(func(*http.Request) (int, string) { time.Sleep(10 * time.Second); return 0, "" }, nil)
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if _, err := k.Token(ctx, "alice"); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			w.Errorf("after %v: %v", time.Since(begin), err)
		}
		if _, err := k.Token(ctx, "alice"); !errors.Is(err, context.DeadlineExceeded) {
			w.Error(err)
		}
		w.want(k, "a2") // the request went on, or there would be doubt
		w.provider.want(w.T, 1)
	})
}

func TestCloseWaitsForTheProvider(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper(nil)
		w.provider.set(func(*http.Request) (int, string) { time.Sleep(10 * time.Second); return 0, "" }, nil)
		var work sync.WaitGroup
		work.Go(func() { w.want(k, "a2") })
		synctest.Wait()
		begin := time.Now()
		k.Close()
		if d := time.Since(begin); d != 10*time.Second {
			w.Errorf("Close took %v", d)
		}
		work.Wait()
		k.Close()
		w.wantError(k, tokens.ErrClosed)
		if err := k.Replace(w.Context(), "alice", &oauth2.Token{RefreshToken: "r"}); !errors.Is(err, tokens.ErrClosed) {
			w.Errorf("Replace: %v", err)
		}
		other, _ := w.keeper(nil)
		w.want(other, "a2")
		w.provider.want(w.T, 1)
	})
}

// A request that Close has not seen under way is not begun, and leaves no doubt.
func TestCloseBeginsNoRequest(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper(nil)
		saving, closed := make(chan struct{}), make(chan struct{})
		w.store.set(func(r tokens.Record) error {
			if r.Spending.Fence != 0 {
				close(saving)
				<-closed
			}
			return nil
		}, nil)
		var work sync.WaitGroup
		work.Go(func() { w.wantError(k, tokens.ErrClosed) })
		<-saving
		work.Go(k.Close)
		synctest.Wait()
		close(closed)
		work.Wait()
		w.provider.want(w.T, 0)
		w.store.set(nil, nil)
		other, _ := w.keeper(nil)
		w.want(other, "a2")
		w.provider.want(w.T, 1)
	})
}

// stuck is a store that answers nothing until the context ends, and then tells Err of that, as most
// do.
type stuck struct{ tokens.Store }

func (stuck) Load(ctx context.Context, _ string) (tokens.Record, error) {
	<-ctx.Done()
	return tokens.Record{}, ctx.Err()
}

// unsaved is a store with only Save stuck.
type unsaved struct{ tokens.Store }

func (unsaved) Save(ctx context.Context, _ string, _ tokens.Record) error {
	<-ctx.Done()
	return ctx.Err()
}

// Callers that wait for the store when the Keeper is closed are told that, and not of another's
// context.
func TestCloseEndsWhatTheStoreDoesNotAnswer(t *testing.T) {
	for name, hang := range map[string]func(w *world) *tokens.Keeper{
		"Load": func(w *world) *tokens.Keeper {
			k, _ := w.keeper(nil)
			w.store.Store = stuck{w.store.Store}
			return k
		},
		"Save": func(w *world) *tokens.Keeper {
			k := w.outage() // its kept record is stored first
			w.store.Store = unsaved{w.store.Store}
			return k
		},
		"Save of the mark": func(w *world) *tokens.Keeper {
			k, _ := w.keeper(nil)
			w.store.Store = unsaved{w.store.Store}
			return k
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				k := hang(w)
				var work sync.WaitGroup
				work.Go(func() { w.wantError(k, tokens.ErrClosed) })
				synctest.Wait()
				begin := time.Now()
				k.Close()
				work.Wait()
				most := time.Duration(0)
				if name == "Save of the mark" { // which is taken back if it can be: else the account is in doubt
					most = 30 * time.Second
				}
				if d := time.Since(begin); d > most {
					w.Errorf("Close took %v", d)
				}
			})
		})
	}
}

// An outage of the provider is few records, however many accounts there are.
func TestAnOutageIsFewRecords(t *testing.T) {
	bubble(t, func(w *world) {
		const accounts = 100
		var out bytes.Buffer // one record is written at a time
		k, _ := w.keeper(&tokens.Options{Logger: slog.New(slog.NewTextHandler(&out, nil))})
		w.provider.set(nil, func(rw http.ResponseWriter) bool { rw.WriteHeader(http.StatusServiceUnavailable); return true })
		for i := range accounts {
			old := &oauth2.Token{AccessToken: "a1", RefreshToken: fmt.Sprint("r", i), Expiry: time.Now()}
			if err := k.Replace(w.Context(), fmt.Sprint(i), old); err != nil {
				w.Fatal(err)
			}
		}
		for begin := time.Now(); time.Since(begin) < 10*time.Second; time.Sleep(backoff) {
			for i := range accounts {
				if _, err := k.Token(w.Context(), fmt.Sprint(i)); err == nil {
					w.Fatal("a token while the provider is not there")
				}
			}
		}
		if n := strings.Count(out.String(), "could not be refreshed"); n != 1 {
			w.Errorf("%d records within 10 s", n)
		}
		time.Sleep(time.Second)
		if _, err := k.Token(w.Context(), "7"); err == nil || !strings.Contains(out.String(), "suppressed=999") {
			w.Errorf("%v, and after 10 s: %s", err, out.String())
		}
	})
}

func TestTokensOfWhichTheLifeIsNotKnown(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper(nil)
		if err := k.Replace(w.Context(), "alice", &oauth2.Token{AccessToken: "unknown", RefreshToken: "r1"}); err != nil {
			w.Fatal(err)
		}
		w.provider.life = 0 // it does not say
		w.want(k, "unknown")
		for i := range 3 {
			time.Sleep(time.Hour)
			got, err := k.Token(w.Context(), "alice")
			if want := fmt.Sprint("a", i+2); err != nil || got.AccessToken != want || !got.Expiry.IsZero() {
				w.Fatalf("after %d hours: got %+v, %v, want %s", i+1, got, err, want)
			}
		}
		other, _ := w.keeper(nil) // it counts from when the token was got, in whichever process
		w.want(other, "a4")
		short, _ := w.keeper(&tokens.Options{Life: time.Minute})
		time.Sleep(2 * time.Minute)
		w.want(k, "a4")
		w.want(short, "a5")
	})
}

func TestTokensThatNeverExpire(t *testing.T) {
	bubble(t, func(w *world) {
		forEver := &tokens.Options{Life: -1}
		k, _ := w.keeper(forEver)
		if err := k.Replace(w.Context(), "alice", &oauth2.Token{AccessToken: "for ever", RefreshToken: "r"}); err != nil {
			w.Fatal(err)
		}
		other, _ := w.keeper(forEver)
		time.Sleep(65 * time.Minute) // more than Life is by default
		w.want(k, "for ever")
		w.want(other, "for ever")
		w.provider.want(w.T, 0)
	})
}

func TestAccountsThatNobodyUsesAreForgotten(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper(nil)
		for i := range 1000 {
			if err := k.Replace(w.Context(), fmt.Sprint(i), &oauth2.Token{AccessToken: "a", RefreshToken: "r", Expiry: time.Now().Add(time.Second)}); err != nil {
				w.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if n := tokens.Accounts(k); n > 64 {
			w.Errorf("%d accounts are remembered", n)
		}
	})
}

func TestBadInput(t *testing.T) {
	bubble(t, func(w *world) {
		k, locks := w.keeper(nil)
		if _, err := k.Token(w.Context(), "bob"); !errors.Is(err, tokens.ErrNoAccount) {
			w.Error(err)
		}
		for _, name := range []string{"", strings.Repeat("k", tokens.MaxAccount+1)} {
			if _, err := k.Token(w.Context(), name); !errors.Is(err, tokens.ErrAccount) {
				w.Errorf("a name of %d bytes: %v", len(name), err)
			}
			if err := k.Replace(w.Context(), name, &oauth2.Token{RefreshToken: "r"}); !errors.Is(err, tokens.ErrAccount) {
				w.Errorf("Replace with a name of %d bytes: %v", len(name), err)
			}
		}
		for _, bad := range []*oauth2.Token{nil, {AccessToken: "a"}} {
			if err := k.Replace(w.Context(), "alice", bad); err == nil {
				w.Errorf("Replace with %v", bad)
			}
		}
		good := config("http://provider/token")
		probing := config("http://provider/token")
		probing.Endpoint.AuthStyle = oauth2.AuthStyleAutoDetect
		for want, err := range map[string]error{
			"coordinator":                   second(tokens.New(nil, good, w.store, nil)),
			"Config is nil":                 second(tokens.New(locks, nil, w.store, nil)),
			"store":                         second(tokens.New(locks, good, nil, nil)),
			"TokenURL":                      second(tokens.New(locks, config(""), w.store, nil)),
			"AuthStyle":                     second(tokens.New(locks, probing, w.store, nil)),
			"Options.Early":                 second(tokens.New(locks, good, w.store, &tokens.Options{Early: -1})),
			"Options.ReplayInDoubt":         second(tokens.New(locks, good, w.store, &tokens.Options{ReplayInDoubt: -1})),
			"Options.Timeout is 10ns":       second(tokens.New(locks, good, w.store, &tokens.Options{Timeout: 10})),
			"Options.ReplayInDoubt is 30ns": second(tokens.New(locks, good, w.store, &tokens.Options{ReplayInDoubt: 30})),
			"Options.Life is 3.6µs":         second(tokens.New(locks, good, w.store, &tokens.Options{Life: 3600})),
			"HTTPClient.Timeout":            second(tokens.New(locks, good, w.store, &tokens.Options{HTTPClient: &http.Client{Timeout: time.Second}})),
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				w.Errorf("New: got %v, want something about %s", err, want)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }
