package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/middleware"
)

// ofAccounts are the keys of a transfer.
var ofAccounts = middleware.Keys(middleware.Key("account", middleware.Query("from")), middleware.Key("account", middleware.Query("to")))

// Transfers between the same accounts, there and back, in the processes of a cluster: one at a time
// each, and none waits for ever.
func TestSerializeAll_Transfers(t *testing.T) {
	t.Parallel()
	const accounts, rounds = 4, 12
	var in [accounts]atomic.Int32
	var last [accounts]atomic.Uint64
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var own []int
		for _, name := range []string{"from", "to"} {
			var k int
			fmt.Sscan(r.URL.Query().Get(name), &k)
			l := middleware.Locks(r.Context()).Of(fmt.Sprint("account/", k))
			if old := last[k].Swap(uint64(l.Fence())); old >= uint64(l.Fence()) {
				t.Errorf("token %d after %d (I2)", l.Fence(), old)
			}
			if in[k].Add(1) != 1 {
				t.Error("two at a time (I1)")
			}
			own = append(own, k)
		}
		await.Throughout(t, time.Millisecond, "alone (I1)", func() bool { return in[own[0]].Load() == 1 && in[own[1]].Load() == 1 })
		for _, k := range own {
			in[k].Add(-1)
		}
	})
	nodes := cluster(t, 2, func(x *node) http.Handler {
		route := middleware.Route(x.c, middleware.Key("account", middleware.Query("from")), &middleware.RouteOptions{Transport: x.tr})
		return route(middleware.SerializeAll(x.c, ofAccounts, nil)(h))
	})
	var work sync.WaitGroup
	for i, x := range nodes {
		for w := range accounts {
			work.Go(func() {
				for j := range rounds {
					from, to := w, (w+1+j%(accounts-1))%accounts
					if i == 1 {
						from, to = to, from
					}
					exchange(t.Context(), x.Server, "POST", fmt.Sprintf("/?from=%d&to=%d", from, to), "").is(t, http.StatusOK, "")
				}
			})
		}
	}
	work.Wait()
	for _, x := range nodes {
		idle(t, x.c)
	}
}

// The handler has its locks in the order of their keys, each once, and Lock returns the first.
func TestSerializeAll_Locks(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	var got []string
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		first, _ := middleware.Lock(r.Context())
		got = []string{first.Key()}
		for _, l := range middleware.Locks(r.Context()) {
			got = append(got, l.Key())
		}
		for _, l := range middleware.Locks(r.Context()) {
			if _, err := c.Lock(r.Context(), l.Key()); !errors.Is(err, coord.ErrHeld) {
				t.Errorf("%s: %v", l.Key(), err)
			}
		}
		if n := c.Stats().Locked; n != len(got)-1 {
			t.Errorf("%d are locked", n)
		}
	})
	outer := middleware.Serialize(c, func(*http.Request) (string, error) { return "account/b", nil }, nil)
	all := middleware.SerializeAll(c, ofAccounts, nil)
	skipping := middleware.SerializeAll(c, middleware.Keys(
		func(*http.Request) (string, error) { return "", middleware.ErrSkip }, middleware.Key("x"),
	), nil)
	for _, x := range []struct {
		name, target string
		h            http.Handler
		want         []string
	}{
		{"two", "/?from=b&to=a", all(h), []string{"account/b", "account/b", "account/a"}},
		{"one twice", "/?from=a&to=a", all(h), []string{"account/a", "account/a"}},
		{"in Serialize", "/?from=b&to=a", outer(all(h)), []string{"account/a", "account/a", "account/b"}},
		{"in itself", "/?from=b&to=a", all(all(h)), []string{"account/b", "account/b", "account/a"}},
		{"one is skipped", "/", skipping(h), []string{"x", "x"}},
	} {
		got = nil
		w := httptest.NewRecorder()
		x.h.ServeHTTP(w, post(x.target))
		if w.Code != http.StatusOK || !slices.Equal(got, x.want) {
			t.Errorf("%s: %d, %q, want %q", x.name, w.Code, got, x.want)
		}
		idle(t, c)
	}
	if locks := middleware.Locks(t.Context()); locks != nil {
		t.Errorf("%v out of nothing", locks)
	}
}

// A request that lacks one lock keeps none.
func TestSerializeAll_Refused(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	taken, err := c.Lock(t.Context(), "account/a")
	if err != nil {
		t.Fatal(err)
	}
	many := func(n int) middleware.KeysFunc {
		return func(*http.Request) ([]string, error) {
			var all []string
			for i := range n {
				all = append(all, fmt.Sprint("k", i%101))
			}
			return all, nil
		}
	}
	ran := false
	h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran = true })
	short, none := &middleware.SerializeOptions{Wait: 5 * soon}, &middleware.SerializeOptions{Wait: -1}
	for _, x := range []struct {
		name, target string
		h            http.Handler
		status       int
	}{
		{"a wait", "/?from=b&to=a", middleware.SerializeAll(c, ofAccounts, short)(h), http.StatusLocked},
		{"no wait", "/?from=a&to=b", middleware.SerializeAll(c, ofAccounts, none)(h), http.StatusLocked},
		{"a bad key", "/?from=b", middleware.SerializeAll(c, ofAccounts, nil)(h), http.StatusBadRequest},
		{"a key that cannot be", "/", middleware.SerializeAll(c, func(*http.Request) ([]string, error) { return []string{"a", ""}, nil }, nil)(h), http.StatusBadRequest},
		{"too many keys", "/", middleware.SerializeAll(c, many(101), nil)(h), http.StatusBadRequest},
		{"as many as may be", "/", middleware.SerializeAll(c, many(100), nil)(h), http.StatusOK},
		{"no keys", "/", middleware.SerializeAll(c, many(0), nil)(h), http.StatusOK},
		{"skipped", "/", middleware.SerializeAll(c, func(*http.Request) ([]string, error) { return nil, middleware.ErrSkip }, nil)(h), http.StatusOK},
	} {
		ran = false
		w := httptest.NewRecorder()
		x.h.ServeHTTP(w, post(x.target))
		if w.Code != x.status || ran != (x.status == http.StatusOK) {
			t.Errorf("%s: %d %s, ran %v", x.name, w.Code, w.Body, ran)
		}
		await.Until(t, x.name+": one is locked", func() bool { return c.Stats().Locked == 1 && c.Stats().Waiting == 0 })
	}
	taken.Unlock()
}

// MaxWaiters is for each key, and a request that is sent away is counted nowhere.
func TestSerializeAll_TooManyWait(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	g := newGate()
	s := serve(t, middleware.SerializeAll(c, ofAccounts, &middleware.SerializeOptions{MaxWaiters: 1})(g))
	replies := make(chan reply, 2)
	for n := range 2 {
		go func() { replies <- exchange(t.Context(), s, "POST", "/?from=b&to=a", "") }()
		waiting(t, c, n)
		if n == 0 {
			from(t, g.in, "a run")
		}
	}
	for range 3 {
		if r := exchange(t.Context(), s, "POST", "/?from=c&to=a", ""); r.err != nil || r.StatusCode != http.StatusTooManyRequests {
			t.Errorf("%v %v", r.err, r.body)
		}
	}
	g.out <- struct{}{}
	from(t, g.in, "a run")
	g.out <- struct{}{}
	for range 2 {
		from(t, replies, "an answer").is(t, http.StatusOK, "done")
	}
	for range 2 { // were c still counted, they would be too many
		go func() { replies <- exchange(t.Context(), s, "POST", "/?from=c&to=d", "") }()
	}
	for range 2 {
		from(t, g.in, "a run")
		g.out <- struct{}{}
		from(t, replies, "an answer").is(t, http.StatusOK, "done")
	}
	idle(t, c)
}

// The loss of any of the locks ends the handler's context, and the others are given back after it.
func TestSerializeAll_LostLock(t *testing.T) {
	for _, key := range []string{"account/a", "account/b"} {
		c := start(t, fallback.NewMemory(), nil)
		var cause error
		h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			done := r.Context().Done()
			if err := c.Break(t.Context(), key, middleware.Locks(r.Context()).Of(key).Fence(), "test"); err != nil {
				t.Error(err)
			}
			from(t, done, "the end of the handler's context")
			cause = context.Cause(r.Context())
		})
		middleware.SerializeAll(c, ofAccounts, nil)(h).ServeHTTP(httptest.NewRecorder(), post("/?from=b&to=a"))
		if !errors.Is(cause, coord.ErrLost) {
			t.Errorf("%s: %v", key, cause)
		}
		idle(t, c)
	}
}

// A handler that runs on keeps all of its locks.
func TestSerializeAll_TimeoutHandler(t *testing.T) {
	for name, timeout := range timeouts {
		t.Run(name, func(t *testing.T) {
			c := start(t, fallback.NewMemory(), nil)
			in, proceed := make(chan struct{}), make(chan struct{})
			s := serving(t, middleware.SerializeAll(c, ofAccounts, nil)(timeout(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				in <- struct{}{}
				<-proceed
			}))))
			replies := make(chan reply, 1)
			go func() { replies <- exchange(t.Context(), s, "POST", "/?from=a&to=b", "") }()
			from(t, in, "the handler")
			from(t, replies, "an answer").is(t, http.StatusServiceUnavailable, "too slow")
			if n := c.Stats().Locked; n != 2 {
				t.Errorf("%d locks while the handler runs", n)
			}
			close(proceed)
			idle(t, c)
		})
	}
}

func TestSerializeAll_Panics(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	for name, f := range map[string]func(){
		"no coordinator": func() { middleware.SerializeAll(nil, ofAccounts, nil) },
		"no keys":        func() { middleware.SerializeAll(c, nil, nil) },
		"nil key":        func() { middleware.Keys(nil) },
		"fence header":   func() { middleware.SerializeAll(c, ofAccounts, &middleware.SerializeOptions{FenceHeader: "Fence"}) },
		"status":         func() { middleware.SerializeAll(c, ofAccounts, &middleware.SerializeOptions{LockedStatus: 500}) },
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "middleware: ") {
					t.Errorf("%s: %q", name, text)
				}
			}()
			f()
		}()
	}
}
