package middleware_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
)

// A handler that locks the key of its own request would wait for itself.
func TestHandler_CannotLockItsOwnKey(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	key := func(r *http.Request) (string, error) { return r.PathValue("id"), nil }
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l, _ := middleware.Lock(r.Context())
		never := func(context.Context, coord.Lock) error { t.Error("two holders (I1)"); return nil }
		_, tried := c.TryLock(r.Context(), l.Key())
		for _, err := range []error{c.Do(r.Context(), l.Key(), never), c.Do(l.Context(), l.Key(), never), tried} {
			if !errors.Is(err, coord.ErrHeld) {
				t.Errorf("%v", err)
			}
		}
		if err := c.Do(r.Context(), "another", func(context.Context, coord.Lock) error { return nil }); err != nil {
			t.Error(err)
		}
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
		if err := c.Do(r.Context(), l.Key(), func(context.Context, coord.Lock) error { return nil }); err != nil {
			t.Errorf("after Unlock: %v", err)
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", middleware.Serialize(c, key, nil)(handler))
	s := serve(t, mux)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/orders/42", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if got := do(t, s, r); got.StatusCode != http.StatusNoContent {
		t.Errorf("%v %s", got.Status, got.body)
	}
	idle(t, c)
}

// A server that runs under a lock serves no requests that want the same one: it is the program that
// is wrong.
func TestSerialize_UnderALockOfTheSameKey(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	key := func(*http.Request) (string, error) { return "k", nil }
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("two holders (I1)") })
	_ = c.Do(t.Context(), "k", func(ctx context.Context, _ coord.Lock) error {
		for _, wait := range []time.Duration{time.Hour, -1} {
			h := middleware.Serialize(c, key, &middleware.SerializeOptions{Wait: wait})(nothing)
			s := httptest.NewUnstartedServer(h)
			s.Config.BaseContext = func(net.Listener) context.Context { return ctx }
			s.Start()
			res, err := s.Client().Post(s.URL, "text/plain", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != http.StatusInternalServerError || !strings.HasPrefix(res.Header.Get("Content-Type"), "application/problem") {
				t.Errorf("%v", res.Status)
			}
			s.Close()
		}
		return nil
	})
}
