package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
)

// showing is a middleware that shows each request's innermost lock, on its way in.
func showing(to chan<- coord.Lock) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			l, _ := middleware.Lock(r.Context())
			to <- l
			next.ServeHTTP(w, r)
		})
	}
}

// A client that goes while its request waits for a lock within Idempotent has had nothing executed:
// the next request with the key runs.
func TestIdempotent_ClientGoesBeforeTheHandler(t *testing.T) {
	t.Parallel()
	for name, inner := range map[string]func(*coord.Coordinator) func(http.Handler) http.Handler{
		"Serialize": func(c *coord.Coordinator) func(http.Handler) http.Handler {
			return middleware.Serialize(c, byOrder, nil)
		},
		"Limit": func(c *coord.Coordinator) func(http.Handler) http.Handler {
			return middleware.Limit(c, byOrder, 1, &middleware.LimitOptions{Wait: time.Minute})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, fallback.NewMemory(), nil)
			l, err := c.Lock(t.Context(), "order/1")
			if err != nil {
				t.Fatal(err)
			}
			p, err := c.Semaphore("order/1", 1).Acquire(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			idempotent := middleware.Idempotent(c, middleware.NewMemoryStore(nil), middleware.Unscoped, &middleware.IdempotentOptions{FollowClient: true})
			s := serve(t, idempotent(inner(c)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "run") }))))
			ctx, leave := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				r := request(t, s, "1").WithContext(ctx)
				r.Header.Set("Idempotency-Key", "k")
				res, err := s.Client().Do(r)
				if err == nil {
					res.Body.Close()
				}
				ended <- err
			}()
			waiting(t, c, 1)
			leave()
			if err := from(t, ended, "the client's end"); err == nil {
				t.Error("answered")
			}
			waiting(t, c, 0)
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
			if err := p.Release(); err != nil {
				t.Error(err)
			}
			r := request(t, s, "1")
			r.Header.Set("Idempotency-Key", "k")
			if res := do(t, s, r); res.StatusCode != http.StatusOK || res.body != "run" {
				t.Errorf("repeated: %d %s", res.StatusCode, res.body)
			}
		})
	}
}

// A lock that is lost while a request within it waits for another one: the client is there, and
// told.
func TestOuterLockIsLostWhileARequestWaits(t *testing.T) {
	t.Parallel()
	first, second := middleware.Key("first"), middleware.Key("second")
	idempotent := func(c *coord.Coordinator) func(http.Handler) http.Handler {
		return middleware.Idempotent(c, middleware.NewMemoryStore(nil), middleware.Unscoped, nil)
	}
	for name, x := range map[string]struct {
		outer, inner func(*coord.Coordinator) func(http.Handler) http.Handler
	}{
		"Serialize in Serialize": {
			func(c *coord.Coordinator) func(http.Handler) http.Handler { return middleware.Serialize(c, first, nil) },
			func(c *coord.Coordinator) func(http.Handler) http.Handler {
				return middleware.Serialize(c, second, nil)
			},
		},
		"SerializeAll in Serialize": {
			func(c *coord.Coordinator) func(http.Handler) http.Handler { return middleware.Serialize(c, first, nil) },
			func(c *coord.Coordinator) func(http.Handler) http.Handler {
				return middleware.SerializeAll(c, middleware.Keys(second), nil)
			},
		},
		"Limit in Serialize": {
			func(c *coord.Coordinator) func(http.Handler) http.Handler { return middleware.Serialize(c, first, nil) },
			func(c *coord.Coordinator) func(http.Handler) http.Handler {
				return middleware.Limit(c, second, 1, &middleware.LimitOptions{Wait: time.Minute})
			},
		},
		"Serialize in Idempotent": {
			idempotent,
			func(c *coord.Coordinator) func(http.Handler) http.Handler {
				return middleware.Serialize(c, second, nil)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, fallback.NewMemory(), nil)
			l, err := c.Lock(t.Context(), "second")
			if err != nil {
				t.Fatal(err)
			}
			p, err := c.Semaphore("second", 1).Acquire(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			locks := make(chan coord.Lock, 2)
			s := serve(t, x.outer(c)(showing(locks)(x.inner(c)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "run") })))))
			send := func() (response, error) {
				r := request(t, s, "1")
				r.Header.Set("Idempotency-Key", "k")
				res, err := s.Client().Do(r)
				if err != nil {
					return response{}, err
				}
				res.Body.Close()
				return response{Response: res}, nil
			}
			type answer struct {
				response
				error
			}
			came := make(chan answer, 1)
			go func() { res, err := send(); came <- answer{res, err} }()
			outer := from(t, locks, "the outer lock")
			waiting(t, c, 1)
			if err := c.Break(t.Context(), outer.Key(), outer.Fence(), "a test"); err != nil {
				t.Fatal(err)
			}
			if a := from(t, came, "the answer"); a.error != nil || a.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("%v, %+v", a.error, a.Response)
			}
			if err := l.Unlock(); err != nil {
				t.Error(err)
			}
			if err := p.Release(); err != nil {
				t.Error(err)
			}
			if res, err := send(); err != nil || res.StatusCode != http.StatusOK {
				t.Errorf("repeated: %v, %+v", err, res.Response)
			}
		})
	}
}

// A limit of the request's own context ends a run of Coalesce that waits for a lock: the client is
// there, and told. The request of a client that has gone is aborted.
func TestCoalesce_RequestEndsWhileItsRunWaits(t *testing.T) {
	t.Parallel()
	key := middleware.Key("k")
	get := &middleware.SerializeOptions{Methods: []string{http.MethodGet}}
	for name, around := range map[string]func(*coord.Coordinator) func(http.Handler) http.Handler{
		"Lock": func(c *coord.Coordinator) func(http.Handler) http.Handler {
			return middleware.Coalesce(c, key, &middleware.CoalesceOptions{Lock: true})
		},
		"around Serialize": func(c *coord.Coordinator) func(http.Handler) http.Handler {
			return func(h http.Handler) http.Handler {
				return middleware.Coalesce(c, key, nil)(middleware.Serialize(c, key, get)(h))
			}
		},
		"in another": func(c *coord.Coordinator) func(http.Handler) http.Handler {
			return func(h http.Handler) http.Handler {
				return middleware.Coalesce(c, key, nil)(middleware.Coalesce(c, key, &middleware.CoalesceOptions{Lock: true})(h))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, fallback.NewMemory(), nil)
			l, err := c.Lock(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Unlock()
			h := around(c)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("two holders (I1)") }))
			w := httptest.NewRecorder()
			ended := func(ctx context.Context) any {
				end := make(chan any)
				go func() {
					defer func() { end <- recover() }()
					h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
				}()
				return <-end
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if p := ended(ctx); p != nil || w.Code != http.StatusServiceUnavailable {
				t.Errorf("its time is up: %d %s, panic %v", w.Code, w.Body, p)
			}
			ctx, leave := context.WithCancel(t.Context())
			go func() {
				waiting(t, c, 1)
				leave()
			}()
			if p := ended(ctx); p != http.ErrAbortHandler {
				t.Errorf("gone: %v", p)
			}
		})
	}
}
