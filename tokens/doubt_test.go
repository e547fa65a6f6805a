package tokens_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/oauth2"

	"github.com/holdfast-go/holdfast/tokens"
)

// unheard makes the provider do its work, and the answer get lost.
func unheard(http.ResponseWriter) bool { panic(http.ErrAbortHandler) }

func TestAnAnswerThatWasLostLeavesDoubt(t *testing.T) {
	for name, after := range map[string]func(http.ResponseWriter) bool{
		"connection lost": unheard,
		"500":             func(w http.ResponseWriter) bool { refuse(w, 500, "server_error"); return true },
		"503":             func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusServiceUnavailable); return true },
		"cut off":         func(w http.ResponseWriter) bool { _, _ = w.Write([]byte(`{"access_tok`)); return true },
		"too late":        func(http.ResponseWriter) bool { time.Sleep(time.Minute); return false },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				k, _ := w.keeper(nil)
				other, _ := w.keeper(nil)
				w.provider.set(nil, after)
				begin := time.Now()
				err := w.wantError(k, tokens.ErrInDoubt)
				d, ok := errors.AsType[*tokens.InDoubtError](err)
				if !ok || d.Account != "alice" || d.Fence == 0 || d.Again || d.Replay || d.Err == nil || !d.Since.Equal(begin) {
					w.Errorf("got %+v", d)
				}
				w.provider.set(nil, nil)
				for range 3 {
					w.wantError(k, tokens.ErrInDoubt)
					w.wantError(other, tokens.ErrInDoubt)
					time.Sleep(backoff)
				}
				w.provider.want(w.T, 1) // whatever else, it is not sent again
				login := &oauth2.Token{AccessToken: "new", RefreshToken: "new", Expiry: time.Now().Add(time.Hour)}
				if err := other.Replace(w.Context(), "alice", login); err != nil {
					w.Fatal(err)
				}
				w.want(other, "new")
				w.want(k, "new")
				time.Sleep(time.Minute)
			})
		})
	}
}

// A process that has a valid access token goes on using it while the account is in doubt.
func TestATokenIsUsedToItsEndInDoubt(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper(nil)
		w.want(k, "a2")
		w.provider.set(nil, unheard)
		time.Sleep(time.Hour - 11*time.Second)
		for range 10 {
			w.want(k, "a2")
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		w.provider.want(w.T, 2)
		time.Sleep(backoff)
		w.wantError(k, tokens.ErrInDoubt)
		w.provider.want(w.T, 2)
	})
}

// So does a process that starts only then.
func TestAProcessThatStartsInDoubtUsesTheToken(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper(nil)
		w.want(k, "a2")
		w.provider.set(nil, unheard)
		time.Sleep(time.Hour - 11*time.Second)
		w.want(k, "a2")
		synctest.Wait()
		late, _ := w.keeper(nil)
		w.want(late, "a2")
		time.Sleep(backoff)
		w.wantError(late, tokens.ErrInDoubt)
		w.provider.want(w.T, 2)
	})
}

// The process that asks the provider is cut off and taken for dead; then the answer comes after
// all.
func TestALateAnswerEndsTheDoubt(t *testing.T) {
	bubble(t, func(w *world) {
		k, locks := w.keeper(nil)
		other, _ := w.keeper(nil)
		proceed := make(chan struct{})
		w.provider.set(func(*http.Request) (int, string) { <-proceed; return 0, "" }, nil)
		var work sync.WaitGroup
		work.Go(func() { w.want(k, "a2") })
		synctest.Wait()
		now, cancel := context.WithCancel(w.Context())
		cancel()
		_ = locks.Close(now) // its lock is lost
		w.wantError(other, tokens.ErrInDoubt)
		close(proceed)
		work.Wait()
		time.Sleep(backoff)
		w.want(other, "a2")
		w.provider.want(w.T, 1)
	})
}

// As above, but a new login was first: the late answer must not replace it.
func TestALateAnswerDoesNotReplaceALogin(t *testing.T) {
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
		_ = locks.Close(now)
		login := &oauth2.Token{AccessToken: "new", RefreshToken: "new", Expiry: time.Now().Add(time.Hour)}
		if err := other.Replace(w.Context(), "alice", login); err != nil {
			w.Fatal(err)
		}
		close(proceed)
		work.Wait()
		time.Sleep(backoff)
		w.want(other, "new")
		w.want(k, "new")
	})
}

func TestNothingIsSentWithoutTheLock(t *testing.T) {
	bubble(t, func(w *world) {
		k, locks := w.keeper(nil)
		w.store.set(nil, func(r tokens.Record) error {
			if r.Spending.Fence != 0 { // the last moment
				now, cancel := context.WithCancel(w.Context())
				cancel()
				_ = locks.Close(now)
			}
			return nil
		})
		if _, err := k.Token(w.Context(), "alice"); err == nil {
			w.Error("no error")
		}
		w.provider.want(w.T, 0)
		w.store.set(nil, nil)
		other, _ := w.keeper(nil)
		w.want(other, "a2") // the mark was taken back
		w.provider.want(w.T, 1)
	})
}

func TestAForgivingProviderIsAskedOnceMore(t *testing.T) {
	forgiving := &tokens.Options{ReplayInDoubt: 30 * time.Second}
	t.Run("and answers", func(t *testing.T) {
		bubble(t, func(w *world) {
			w.provider.grace = time.Minute
			k, _ := w.keeper(forgiving)
			other, _ := w.keeper(forgiving)
			w.provider.set(nil, unheard)
			if d, ok := errors.AsType[*tokens.InDoubtError](w.wantError(k, tokens.ErrInDoubt)); !ok || !d.Replay {
				w.Errorf("got %+v", d)
			}
			w.provider.set(nil, nil)
			w.want(other, "a3")
			time.Sleep(backoff)
			w.want(k, "a3")
			w.provider.want(w.T, 2)
			time.Sleep(time.Hour)
			w.want(k, "a4")
			w.provider.want(w.T, 3)
		})
	})
	for name, x := range map[string]struct {
		after string
		sleep time.Duration
	}{
		"after the time that it asks for":     {"20", 20 * time.Second},
		"and sooner, if that were too late":   {"30", backoff},
		"and sooner, if that were much later": {"3600", backoff},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.provider.grace = time.Minute
				k, _ := w.keeper(forgiving)
				w.provider.set(nil, func(rw http.ResponseWriter) bool {
					rw.Header().Set("Retry-After", x.after)
					rw.WriteHeader(http.StatusServiceUnavailable)
					return true
				})
				if d, ok := errors.AsType[*tokens.InDoubtError](w.wantError(k, tokens.ErrInDoubt)); !ok || !d.Replay {
					w.Errorf("got %+v", d)
				}
				w.provider.set(nil, nil)
				time.Sleep(x.sleep - 100*time.Millisecond)
				w.wantError(k, tokens.ErrInDoubt)
				w.provider.want(w.T, 1)
				time.Sleep(backoff)
				w.want(k, "a3")
				w.provider.want(w.T, 2)
			})
		})
	}
	t.Run("and is not heard again", func(t *testing.T) {
		bubble(t, func(w *world) {
			w.provider.grace = time.Minute
			k, _ := w.keeper(forgiving)
			other, _ := w.keeper(forgiving)
			w.provider.set(nil, unheard)
			first, _ := errors.AsType[*tokens.InDoubtError](w.wantError(k, tokens.ErrInDoubt))
			time.Sleep(time.Second)
			d, ok := errors.AsType[*tokens.InDoubtError](w.wantError(other, tokens.ErrInDoubt))
			if !ok || !d.Again || d.Replay || !d.Since.Equal(first.Since) {
				w.Errorf("got %+v", d)
			}
			for range 3 {
				time.Sleep(backoff)
				w.wantError(k, tokens.ErrInDoubt)
				w.wantError(other, tokens.ErrInDoubt)
			}
			w.provider.want(w.T, 2) // not a third time
		})
	})
	t.Run("but not too late", func(t *testing.T) {
		bubble(t, func(w *world) {
			k, _ := w.keeper(forgiving)
			w.provider.set(nil, unheard)
			w.wantError(k, tokens.ErrInDoubt)
			time.Sleep(30 * time.Second)
			w.wantError(k, tokens.ErrInDoubt)
			w.provider.want(w.T, 1)
		})
	})
	t.Run("and cannot be reached for that", func(t *testing.T) {
		bubble(t, func(w *world) {
			w.provider.grace = time.Minute
			k, _ := w.keeper(forgiving)
			w.provider.set(nil, unheard)
			w.wantError(k, tokens.ErrInDoubt)
			w.provider.set(func(*http.Request) (int, string) { return 429, "slow_down" }, nil)
			time.Sleep(backoff)
			if _, err := k.Token(w.Context(), "alice"); err == nil || errors.Is(err, tokens.ErrInDoubt) {
				w.Errorf("got %v, want the provider's", err)
			}
			// Only the first one was sent for certain: there is a second one yet.
			w.provider.set(nil, nil)
			time.Sleep(backoff)
			w.want(k, "a3")
		})
	})
}

func TestARejectedTokenIsNotSentAgain(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper(nil)
		other, _ := w.keeper(nil)
		w.provider.set(func(*http.Request) (int, string) { return 400, "invalid_grant" }, nil)
		r, ok := errors.AsType[*tokens.RejectedError](w.wantError(k, tokens.ErrRejected))
		if !ok || r.Account != "alice" || r.Code != "invalid_grant" {
			w.Errorf("got %+v", r)
		}
		if p, ok := errors.AsType[*oauth2.RetrieveError](r); !ok || p.ErrorCode != "invalid_grant" {
			w.Errorf("got %v", r.Err)
		}
		for range 10 {
			w.wantError(k, tokens.ErrRejected)
			w.wantError(other, tokens.ErrRejected)
			time.Sleep(backoff)
		}
		w.wantError(k, tokens.ErrRejected) // it need not wait for Backoff
		w.provider.want(w.T, 1)
		if err := k.Replace(w.Context(), "alice", &oauth2.Token{RefreshToken: "r1"}); err != nil {
			w.Fatal(err)
		}
		w.provider.set(nil, nil)
		w.want(k, "a2")
		w.want(other, "a2")
	})
}

func TestAPoliteRefusalLeavesNoDoubt(t *testing.T) {
	for _, status := range []int{400, 401, 403, 429, 200} {
		bubble(t, func(w *world) {
			k, _ := w.keeper(nil)
			w.provider.set(func(*http.Request) (int, string) { return status, "invalid_client" }, nil)
			if p, ok := errors.AsType[*oauth2.RetrieveError](second(k.Token(w.Context(), "alice"))); !ok || p.Response.StatusCode != status {
				w.Errorf("got %v", p)
			}
			w.provider.set(nil, nil)
			time.Sleep(backoff)
			w.want(k, "a2")
			w.provider.want(w.T, 2)
		})
	}
}

// The mark was written or not, but this process knows that nothing was sent.
func TestAMarkThatMayHaveBeenWritten(t *testing.T) {
	bubble(t, func(w *world) {
		k, _ := w.keeper(nil)
		other, _ := w.keeper(nil)
		lost := errors.New("lost")
		w.store.set(nil, func(r tokens.Record) error { return lost })
		w.wantError(k, lost)
		w.store.set(nil, nil)
		w.wantError(other, tokens.ErrInDoubt)
		w.provider.want(w.T, 0)
		time.Sleep(backoff)
		w.want(k, "a2")
		time.Sleep(backoff)
		w.want(other, "a2")
		w.provider.want(w.T, 1)
	})
}

// The same when it was to be sent for the second time: then the first time remains.
func TestAMarkForASecondTimeThatMayHaveBeenWritten(t *testing.T) {
	for name, x := range map[string]struct {
		after    time.Duration
		requests int
	}{
		"in time":  {backoff, 2},
		"too late": {30 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.provider.grace = time.Minute
				k, _ := w.keeper(&tokens.Options{ReplayInDoubt: 30 * time.Second})
				w.provider.set(nil, unheard)
				w.wantError(k, tokens.ErrInDoubt)
				w.provider.set(nil, nil)
				lost := errors.New("lost")
				w.store.set(nil, func(r tokens.Record) error { return lost })
				time.Sleep(backoff)
				w.wantError(k, lost)
				w.store.set(nil, nil)
				careful, _ := w.keeper(nil)
				w.wantError(careful, tokens.ErrInDoubt)
				time.Sleep(x.after)
				if x.requests == 2 {
					w.want(k, "a3")
				} else {
					w.wantError(k, tokens.ErrInDoubt)
				}
				w.provider.want(w.T, x.requests)
			})
		})
	}
}

func TestUnspent(t *testing.T) {
	status := func(s int, code string) error {
		return &oauth2.RetrieveError{Response: &http.Response{StatusCode: s}, ErrorCode: code}
	}
	for _, x := range []struct {
		err  error
		want bool
	}{
		{&url.Error{Op: "Post", Err: &net.OpError{Op: "dial", Err: errors.New("refused")}}, true},
		{&url.Error{Op: "Post", Err: &net.OpError{Op: "dial", Err: &net.DNSError{}}}, true},
		{&url.Error{Op: "Post", Err: &net.OpError{Op: "read", Err: errors.New("reset")}}, false},
		{&url.Error{Op: "Post", Err: &net.OpError{Op: "write", Err: errors.New("reset")}}, false},
		{&url.Error{Op: "Post", Err: context.DeadlineExceeded}, false},
		{errors.New("oauth2: server response missing access_token"), false},
		{status(400, "invalid_request"), true}, {status(429, ""), true}, {status(200, "bad_verification_code"), true},
		{status(500, ""), false}, {status(503, "temporarily_unavailable"), false}, {status(302, ""), false}, {&oauth2.RetrieveError{}, false},
	} {
		if got := tokens.Unspent(x.err); got != x.want {
			t.Errorf("%v: got %v", x.err, got)
		}
	}
}
