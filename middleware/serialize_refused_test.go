package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
)

// problemOf decodes an answer that must be a problem.
func problemOf(t *testing.T, res response) middleware.Problem {
	t.Helper()
	var p middleware.Problem
	if err := json.Unmarshal([]byte(res.body), &p); err != nil {
		t.Errorf("%v: %q", err, res.body)
	}
	if ct := res.Header.Get("Content-Type"); ct != "application/problem+json" || p.Status != res.StatusCode || p.Title == "" {
		t.Errorf("%d, %s, %s", res.StatusCode, ct, res.body)
	}
	return p
}

func TestNoTurnInTime(t *testing.T) {
	for name, x := range map[string]struct {
		opts   middleware.SerializeOptions
		status int
		after  string
	}{
		"by default":  {middleware.SerializeOptions{Wait: 20 * time.Millisecond}, 423, "1"},
		"409":         {middleware.SerializeOptions{Wait: 20 * time.Millisecond, LockedStatus: 409, RetryAfter: 1500 * time.Millisecond}, 409, "2"},
		"not waiting": {middleware.SerializeOptions{Wait: -1, RetryAfter: -1}, 423, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, fallback.NewMemory(), nil)
			g := newGate()
			s := serve(t, middleware.Serialize(c, byOrder, &x.opts)(g))
			var work sync.WaitGroup
			work.Go(func() { do(t, s, request(t, s, "1")) })
			<-g.in
			res := do(t, s, request(t, s, "1"))
			if p := problemOf(t, res); res.StatusCode != x.status || p.Type != middleware.TypeLocked || res.Header.Get("Retry-After") != x.after {
				t.Errorf("%d %s %q", res.StatusCode, res.body, res.Header.Get("Retry-After"))
			}
			close(g.out)
			work.Wait()
			after := serve(t, middleware.Serialize(c, byOrder, nil)(g)) // which waits for as long as a busy machine takes
			if res := do(t, after, request(t, after, "1")); res.StatusCode != http.StatusOK || res.body != "done" {
				t.Errorf("afterwards: %d %s", res.StatusCode, res.body)
			}
			idle(t, c)
		})
	}
}

func TestTheRequestsOwnLimitIsAnsweredToo(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	l, err := c.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	w := httptest.NewRecorder()
	middleware.Serialize(c, middleware.Key("k"), nil)(nil).ServeHTTP(w, post("/").WithContext(ctx))
	if w.Code != 423 { // an empty 200 would be taken for a success
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestTooManyWaiters(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	g := newGate()
	s := serve(t, middleware.Serialize(c, byOrder, &middleware.SerializeOptions{MaxWaiters: 2})(g))
	var work sync.WaitGroup
	work.Go(func() { do(t, s, request(t, s, "1")) })
	<-g.in
	for range 2 {
		work.Go(func() {
			if res := do(t, s, request(t, s, "1")); res.StatusCode != http.StatusOK {
				t.Errorf("one that waited: %d", res.StatusCode)
			}
		})
	}
	waiting(t, c, 2)
	res := do(t, s, request(t, s, "1"))
	if p := problemOf(t, res); res.StatusCode != http.StatusTooManyRequests || p.Type != middleware.TypeTooMany || res.Header.Get("Retry-After") != "1" {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
	work.Go(func() { do(t, s, request(t, s, "2")) }) // another key
	<-g.in
	close(g.out)
	work.Wait()
	if res := do(t, s, request(t, s, "1")); res.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %d", res.StatusCode)
	}
}

// Handlers that have unlocked early, and run on, neither wait nor have the lock: they send no other
// away.
func TestTooManyWaiters_HandlersThatUnlockedEarly(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	opts := &middleware.SerializeOptions{MaxWaiters: 1}
	for name, mw := range map[string]func(http.Handler) http.Handler{
		"Serialize":    middleware.Serialize(c, byOrder, opts),
		"SerializeAll": middleware.SerializeAll(c, func(*http.Request) ([]string, error) { return []string{"all"}, nil }, opts),
	} {
		t.Run(name, func(t *testing.T) {
			free, proceed := make(chan struct{}), make(chan struct{})
			s := serve(t, mw(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				l, _ := middleware.Lock(r.Context())
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
				free <- struct{}{}
				<-proceed
			})))
			var work sync.WaitGroup
			defer work.Wait()
			defer close(proceed)
			for i := range 4 {
				work.Go(func() {
					if res := do(t, s, request(t, s, "1")); res.StatusCode != http.StatusOK {
						t.Errorf("%d, behind %d that have unlocked", res.StatusCode, i)
						free <- struct{}{}
					}
				})
				<-free
			}
		})
	}
}

func TestNoLimitOfWaiters(t *testing.T) {
	t.Parallel()
	c := start(t, fallback.NewMemory(), nil)
	g := newGate()
	s := serve(t, middleware.Serialize(c, byOrder, &middleware.SerializeOptions{MaxWaiters: -1})(g))
	var work sync.WaitGroup
	for range 140 { // more than the default
		work.Go(func() {
			if res := do(t, s, request(t, s, "1")); res.StatusCode != http.StatusOK {
				t.Errorf("%d", res.StatusCode)
			}
		})
	}
	waiting(t, c, 139)
	close(g.out)
	work.Wait()
}

func TestLocksThatAreNotToBeHad(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := serve(t, middleware.Serialize(c, byOrder, nil)(newGate()))
	res := do(t, s, request(t, s, "1"))
	if p := problemOf(t, res); res.StatusCode != http.StatusServiceUnavailable || p.Type != middleware.TypeUnavailable || res.Header.Get("Retry-After") != "1" {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
}

// away is an arbiter that cannot be asked for locks while it is off.
type away struct {
	fallback.Arbiter
	off atomic.Bool
}

type awayNamespace struct {
	fallback.Namespace
	a *away
}

func (a *away) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	ns, err := a.Arbiter.Attach(ctx, s)
	return awayNamespace{ns, a}, err
}

func (n awayNamespace) Lock(ctx context.Context, r fallback.LockRequest) (fallback.LockAnswer, error) {
	if n.a.off.Load() {
		return fallback.LockAnswer{}, errors.New("away")
	}
	return n.Namespace.Lock(ctx, r)
}

func TestTheArbiterIsAway(t *testing.T) {
	a := &away{Arbiter: fallback.NewMemory()}
	c := start(t, a, nil)
	g := newGate()
	close(g.out)
	s := serve(t, middleware.Serialize(c, byOrder, &middleware.SerializeOptions{Wait: 50 * time.Millisecond})(g))
	a.off.Store(true)
	res := do(t, s, request(t, s, "1"))
	if p := problemOf(t, res); res.StatusCode != http.StatusServiceUnavailable || p.Type != middleware.TypeUnavailable || res.Header.Get("Retry-After") != "1" ||
		strings.Contains(res.body, "away") {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
	a.off.Store(false)
	s = serve(t, middleware.Serialize(c, byOrder, nil)(g)) // which waits for as long as a busy machine takes
	if res := do(t, s, request(t, s, "1")); res.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %d %s", res.StatusCode, res.body)
	}
}

func TestProblemsAsTheUserRendersThem(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	var got middleware.Problem
	s := serve(t, middleware.Serialize(c, byOrder, &middleware.SerializeOptions{Problem: func(w http.ResponseWriter, r *http.Request, p middleware.Problem) {
		got = p
		http.Error(w, "mine", http.StatusTeapot)
	}})(nil))
	res := do(t, s, request(t, s, "%00"))
	if _, ok := errors.AsType[*middleware.KeyError](got.Err); !ok || res.StatusCode != http.StatusTeapot || got.Status != 400 || res.body != "mine\n" {
		t.Errorf("%d %q, %+v", res.StatusCode, res.body, got)
	}
}
