package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
)

var ofQuery = middleware.Key("k", middleware.Query("k"))

func answerTo(h http.Handler, method, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
	return w
}

// Of one key n requests run at the same time, and others are told to come again. Other keys are not
// concerned.
func TestLimit(t *testing.T) {
	t.Parallel()
	c := start(t, fallback.NewMemory(), nil)
	free := make(chan struct{})
	began := make(chan struct{}, 2)
	h := middleware.Limit(c, ofQuery, 2, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("k") == "a" {
			began <- struct{}{}
			<-free
		}
	}))
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if w := answerTo(h, "GET", "/?k=a"); w.Code != http.StatusOK {
				t.Errorf("within the limit: %d", w.Code)
			}
		})
	}
	<-began
	<-began
	if w := answerTo(h, "GET", "/?k=a"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
		t.Errorf("over the limit: %d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
	}
	if w := answerTo(h, "GET", "/?k=b"); w.Code != http.StatusOK {
		t.Errorf("another key: %d", w.Code)
	}
	if w := answerTo(middleware.Limit(c, ofQuery, 3, nil)(h), "GET", "/?k=a"); w.Code != http.StatusInternalServerError {
		t.Errorf("another limit of the same key: %d", w.Code)
	}
	close(free)
	all.Wait()
	if w := answerTo(middleware.Limit(c, ofQuery, 2, &middleware.LimitOptions{Wait: time.Minute})(http.NotFoundHandler()), "GET", "/?k=a"); w.Code != http.StatusNotFound {
		t.Errorf("free again: %d", w.Code)
	}
}

// A handler's context ends with the request's, and carries on no permit that was given back.
func TestLimit_Context(t *testing.T) {
	t.Parallel()
	c := start(t, fallback.NewMemory(), nil)
	type mark struct{}
	var inner context.Context
	h := middleware.Limit(c, ofQuery, 1, nil)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		inner = r.Context()
		if inner.Err() != nil || inner.Value(mark{}) != 1 {
			t.Errorf("%v, value %v", inner.Err(), inner.Value(mark{}))
		}
	}))
	r := httptest.NewRequest(http.MethodGet, "/?k=a", nil)
	h.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithValue(r.Context(), mark{}, 1)))
	<-inner.Done()
}

// Requests that read run beside each other, and not beside one that writes.
func TestSerialize_Shared(t *testing.T) {
	t.Parallel()
	c := start(t, fallback.NewMemory(), nil)
	var readers, writers atomic.Int32
	var both sync.WaitGroup
	both.Add(2)
	h := middleware.Serialize(c, ofQuery, &middleware.Options{Shared: []string{"GET", "HEAD"}, FenceHeader: "Fence"})(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				if writers.Add(1) != 1 || readers.Load() != 0 {
					t.Error("a writer is not alone")
				}
				time.Sleep(time.Millisecond)
				writers.Add(-1)
				return
			}
			readers.Add(1)
			if writers.Load() != 0 {
				t.Error("a reader beside a writer")
			}
			l := middleware.ReadLock(r.Context())
			if l.Key() != "k/a" || l.Fence() == 0 {
				t.Errorf("a lock of %q", l.Key())
			}
			if _, err := c.TryLock(r.Context(), "k/a"); err == nil {
				t.Error("a reader has become a writer")
			}
			if r.URL.Query().Has("both") {
				both.Done()
				both.Wait()
			}
			readers.Add(-1)
		}))
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if w := answerTo(h, "GET", "/?k=a&both"); w.Code != http.StatusOK || w.Header().Get("Fence") == "" {
				t.Errorf("%d", w.Code)
			}
		})
	}
	all.Wait()
	for i := range 24 {
		all.Go(func() {
			if w := answerTo(h, []string{"GET", "POST", "HEAD"}[i%3], "/?k=a"); w.Code != http.StatusOK {
				t.Errorf("%d", w.Code)
			}
		})
	}
	all.Wait()
	inside := h
	h = middleware.Serialize(c, ofQuery, &middleware.Options{Shared: []string{"GET"}})(inside) // one in another
	if w := answerTo(h, "GET", "/?k=a"); w.Code != http.StatusOK {
		t.Errorf("nested: %d", w.Code)
	}
}

func TestSerialize_SharedMistakes(t *testing.T) {
	t.Parallel()
	c := start(t, fallback.NewMemory(), nil)
	middleware.Serialize(c, ofQuery, &middleware.Options{Methods: []string{"PUT"}, Shared: []string{"POST"}})
	for what, f := range map[string]func(){
		"both": func() {
			middleware.Serialize(c, ofQuery, &middleware.Options{Methods: []string{"PUT"}, Shared: []string{"PUT"}})
		},
		"both, by default": func() {
			middleware.Serialize(c, ofQuery, &middleware.Options{Shared: []string{"GET", "POST"}})
		},
		"SerializeAll": func() {
			middleware.SerializeAll(c, middleware.Keys(ofQuery), &middleware.Options{Shared: []string{"GET"}})
		},
		"no limit": func() { middleware.Limit(c, ofQuery, 0, nil) },
		"no key":   func() { middleware.Limit(c, nil, 1, nil) },
		"Wait":     func() { middleware.Limit(c, ofQuery, 1, &middleware.LimitOptions{Wait: 10}) },
	} {
		func() {
			defer func() {
				if fmt.Sprint(recover()) == "<nil>" {
					t.Errorf("%s: no panic", what)
				}
			}()
			f()
		}()
	}
}

// A request that reads a key goes by the read lock of a handler further out, however far, while a
// writer of the key waits.
func TestSerialize_SharedInShared(t *testing.T) {
	t.Parallel()
	for _, between := range []bool{false, true} {
		c := start(t, fallback.NewMemory(), nil)
		a, b := middleware.Key("a", middleware.Query("a")), middleware.Key("b", middleware.Query("b"))
		opts := &middleware.Options{Shared: []string{"GET"}}
		ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
		again, writer := middleware.Serialize(c, a, opts)(ok), middleware.Serialize(c, a, opts)(ok)
		var work sync.WaitGroup
		var wanted <-chan struct{}
		var inner http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			innermost := "a/1"
			if between {
				innermost = "b/1"
			}
			if l := middleware.ReadLock(r.Context()); l.Key() != innermost {
				t.Errorf("the innermost lock is of %q", l.Key())
			}
			work.Go(func() {
				if w := answerTo(writer, "POST", "/?a=1"); w.Code != http.StatusNoContent {
					t.Errorf("the writer: %d", w.Code)
				}
			})
			<-wanted
			again.ServeHTTP(w, r)
		})
		if between {
			inner = middleware.Serialize(c, b, opts)(inner)
		}
		outer := middleware.Serialize(c, a, opts)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			wanted = middleware.ReadLock(r.Context()).Wanted()
			inner.ServeHTTP(w, r)
		}))
		if w := answerTo(outer, "GET", "/?a=1&b=1"); w.Code != http.StatusNoContent {
			t.Errorf("b in between: %v: %d %s", between, w.Code, w.Body)
		}
		work.Wait()
	}
}
