package tokens_test

import (
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/oauth2"

	"github.com/holdfast-go/holdfast/tokens"
)

func slowDown(*http.Request) (int, string) { return 429, "slow_down" }

// later checks that a process is told to wait, and until when.
func (w *world) later(k *tokens.Keeper, until time.Time) {
	w.Helper()
	e, ok := errors.AsType[*tokens.RetryLaterError](w.wantError(k, tokens.ErrRetryLater))
	if ok && !e.Until.Equal(until) {
		w.Errorf("until %v, want %v", e.Until, until)
	}
}

// A provider's answer to one process counts for all.
func TestTheProviderIsLeftAloneByAll(t *testing.T) {
	bubble(t, func(w *world) {
		all := make([]*tokens.Keeper, 4)
		for i := range all {
			all[i], _ = w.keeper(nil)
		}
		w.provider.later = "30"
		w.provider.set(slowDown, nil)
		until := time.Now().Add(30 * time.Second)
		for range 5 {
			for _, k := range all {
				w.later(k, until)
			}
			time.Sleep(2 * time.Second)
		}
		w.provider.want(w.T, 1)
		w.provider.set(nil, nil)
		time.Sleep(time.Until(until) + backoff)
		for _, k := range all {
			w.want(k, "a2")
		}
		w.provider.want(w.T, 2)
		if r, err := w.store.Load(w.Context(), "alice"); err != nil || !r.Rest.IsZero() {
			w.Errorf("stored: %+v, %v", r, err)
		}
	})
}

// Also for callers that were waiting for their turn to ask it.
func TestWhoWaitsForTheLockLearnsOfRetryAfter(t *testing.T) {
	bubble(t, func(w *world) {
		asked, proceed := make(chan struct{}), make(chan struct{})
		w.provider.later = "30"
		w.provider.set(func(*http.Request) (int, string) { close(asked); <-proceed; return 429, "slow_down" }, nil)
		var work sync.WaitGroup
		first, _ := w.keeper(nil)
		work.Go(func() { w.wantError(first, tokens.ErrRetryLater) })
		<-asked
		for range 3 {
			k, _ := w.keeper(nil)
			work.Go(func() { w.wantError(k, tokens.ErrRetryLater) })
		}
		synctest.Wait()
		close(proceed)
		work.Wait()
		w.provider.want(w.T, 1)
	})
}

// A provider that may be asked once more is not asked too soon either, by whomever.
func TestAForgivingProviderIsLeftAloneByAll(t *testing.T) {
	bubble(t, func(w *world) {
		w.provider.grace = time.Minute
		k, _ := w.keeper(&tokens.Options{ReplayInDoubt: 50 * time.Second})
		other, _ := w.keeper(&tokens.Options{ReplayInDoubt: 50 * time.Second})
		strict, _ := w.keeper(nil)
		w.provider.set(nil, func(rw http.ResponseWriter) bool {
			rw.Header().Set("Retry-After", "20")
			rw.WriteHeader(http.StatusServiceUnavailable)
			return true
		})
		w.wantError(k, tokens.ErrInDoubt)
		w.provider.set(nil, nil)
		if d, ok := errors.AsType[*tokens.InDoubtError](w.wantError(other, tokens.ErrInDoubt)); !ok || !d.Replay || !errors.Is(d, tokens.ErrRetryLater) {
			w.Errorf("got %+v", d)
		}
		if d, ok := errors.AsType[*tokens.InDoubtError](w.wantError(strict, tokens.ErrInDoubt)); !ok || d.Replay {
			w.Errorf("got %+v", d)
		}
		w.provider.want(w.T, 1)
		time.Sleep(20 * time.Second)
		w.wantError(strict, tokens.ErrInDoubt)
		w.want(other, "a3")
		w.provider.want(w.T, 2)
	})
}

// The provider has nothing against a new login, wherever that was.
func TestALoginEndsRetryAfterEverywhere(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper(nil)
		other, _ := w.keeper(nil)
		w.provider.later = "3600"
		w.provider.set(slowDown, nil)
		w.wantError(k, tokens.ErrRetryLater)
		w.wantError(other, tokens.ErrRetryLater)
		w.provider.set(nil, nil)
		login := &oauth2.Token{AccessToken: "new", RefreshToken: "r1", Expiry: time.Now().Add(time.Minute)}
		if err := other.Replace(w.Context(), "alice", login); err != nil {
			w.Fatal(err)
		}
		time.Sleep(backoff)
		w.want(k, "new")
		time.Sleep(time.Minute)
		w.want(k, "a2")
		w.want(other, "a2")
	})
}

// A clock that is wrong, or a store, does not keep an account from being refreshed for years.
func TestARestThatCannotBeIsIgnored(t *testing.T) {
	bubble(t, func(w *world) {
		r, err := w.store.Load(w.Context(), "alice")
		if err != nil {
			w.Fatal(err)
		}
		r.Rest = time.Now().AddDate(100, 0, 0)
		if err := w.store.Save(w.Context(), "alice", r); err != nil {
			w.Fatal(err)
		}
		k, _ := w.keeper(nil)
		w.want(k, "a2")
	})
}
