package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
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

var byOrder = middleware.Key("order", middleware.Query("order"))

// request is a POST for an order of a server's.
func request(t testing.TB, s *httptest.Server, order string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/?order="+order, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// gate is a handler that says when it runs, and then waits to be let go.
type gate struct{ in, out chan struct{} }

func newGate() gate { return gate{make(chan struct{}, 1000), make(chan struct{})} }

func (g gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.in <- struct{}{}
	<-g.out
	io.WriteString(w, "done")
}

func TestRequestsWithTheSameKeyRunOneAfterAnother(t *testing.T) {
	a := fallback.NewMemory()
	var in [3]atomic.Int32
	var last [3]atomic.Uint64
	var most, all atomic.Int32
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k, _ := strconv.Atoi(r.URL.Query().Get("order"))
		if in[k].Add(1) != 1 {
			t.Error("two at a time (I1)")
		}
		most.Store(max(most.Load(), all.Add(1)))
		l, ok := middleware.Lock(r.Context())
		if !ok || l.Key() != fmt.Sprint("order/", k) {
			t.Errorf("the lock is of %q", l.Key())
		}
		if got := w.Header().Get("Fence"); got != fmt.Sprint(l.Fence()) {
			t.Errorf("the header says %q, the lock %d", got, l.Fence())
		}
		if old := last[k].Swap(uint64(l.Fence())); old >= uint64(l.Fence()) {
			t.Errorf("token %d after %d (I2)", l.Fence(), old)
		}
		await.Throughout(t, time.Millisecond, "alone (I1)", func() bool { return in[k].Load() == 1 })
		all.Add(-1)
		in[k].Add(-1)
	})
	var work sync.WaitGroup
	for range 2 { // "processes"
		c := start(t, a, nil)
		s := serve(t, middleware.Serialize(c, byOrder, &middleware.SerializeOptions{FenceHeader: "fence"})(h))
		for w := range 8 {
			work.Go(func() {
				for i := range 10 {
					if res := do(t, s, request(t, s, fmt.Sprint((w+i)%3))); res.StatusCode != http.StatusOK || res.Header.Get("Fence") == "" {
						t.Errorf("%d %s", res.StatusCode, res.body)
					}
				}
			})
		}
	}
	work.Wait()
	if most.Load() < 2 {
		t.Error("requests with different keys never ran at the same time")
	}
}

func TestMethodsThatAreNotSerialized(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	for _, x := range []struct {
		opts   *middleware.SerializeOptions
		method string
		locked bool
	}{
		{nil, "GET", false}, {nil, "HEAD", false}, {nil, "OPTIONS", false}, {nil, "TRACE", false}, {nil, "", false},
		{nil, "POST", true}, {nil, "PUT", true}, {nil, "PATCH", true}, {nil, "DELETE", true}, {nil, "PURGE", true},
		{&middleware.SerializeOptions{Methods: []string{"GET", "PUT"}}, "GET", true},
		{&middleware.SerializeOptions{Methods: []string{"GET", "PUT"}}, "POST", false},
	} {
		r := post("/")
		r.Method = x.method
		var locked bool
		h := func(_ http.ResponseWriter, r *http.Request) { _, locked = middleware.Lock(r.Context()) }
		middleware.Serialize(c, middleware.Key("k"), x.opts)(http.HandlerFunc(h)).ServeHTTP(httptest.NewRecorder(), r)
		if locked != x.locked {
			t.Errorf("%s: locked %v", x.method, locked)
		}
	}
}

type valueKey struct{}

func TestTheHandlersContext(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	deadline := time.Now().Add(time.Hour)
	ctx, cancel := context.WithDeadline(context.WithValue(t.Context(), valueKey{}, "v"), deadline)
	var after context.Context
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		after = r.Context()
		if d, ok := after.Deadline(); !ok || !d.Equal(deadline) || after.Value(valueKey{}) != "v" || after.Err() != nil {
			t.Errorf("%v %v %v", d, after.Value(valueKey{}), after.Err())
		}
		cancel() // the client goes
		<-after.Done()
		if cause := context.Cause(after); cause != context.Canceled {
			t.Errorf("%v", cause)
		}
		if l, _ := middleware.Lock(after); l.Context().Err() != nil {
			t.Error("the lock ended with the request's context")
		}
	})
	middleware.Serialize(c, middleware.Key("k"), nil)(h).ServeHTTP(httptest.NewRecorder(), post("/").WithContext(ctx))
	if l, ok := middleware.Lock(after); !ok || !errors.Is(context.Cause(l.Context()), coord.ErrUnlocked) {
		t.Errorf("%v, the lock %v", context.Cause(after), context.Cause(l.Context()))
	}
	if _, ok := middleware.Lock(t.Context()); ok {
		t.Error("a lock out of nothing")
	}
}

func TestTheContextEndsAfterTheHandler(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	for _, asked := range []bool{false, true} {
		var after context.Context
		h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			after = r.Context()
			if asked && after.Err() != nil {
				t.Error(after.Err())
			}
		})
		middleware.Serialize(c, middleware.Key("k"), nil)(h).ServeHTTP(httptest.NewRecorder(), post("/"))
		if cause := context.Cause(after); !errors.Is(cause, coord.ErrUnlocked) {
			t.Errorf("%v", cause)
		}
	}
}

func TestALostLockEndsTheHandlersContext(t *testing.T) {
	var log strings.Builder
	c := start2(t)
	var cause error
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		go c.Close(ctx) // gives up on locks that are in use
		<-r.Context().Done()
		cause = context.Cause(r.Context())
	})
	opts := &middleware.SerializeOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	middleware.Serialize(c, middleware.Key("k"), opts)(h).ServeHTTP(httptest.NewRecorder(), post("/"))
	if !errors.Is(cause, coord.ErrLost) {
		t.Errorf("%v", cause)
	}
	if !strings.Contains(log.String(), "lost") {
		t.Errorf("log: %q", log.String())
	}
	c.Close(t.Context()) // waits for the other one
}

// start2 returns a coordinator that the test closes.
func start2(t *testing.T) *coord.Coordinator {
	c, err := coord.New(context.Background(), fallback.NewMemory(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAHandlerMayUnlockEarly(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		l, _ := middleware.Lock(r.Context())
		ended := make(chan struct{})
		context.AfterFunc(l.Context(), func() { close(ended) })
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
		<-ended
		other, err := c.Lock(r.Context(), "k")
		if err != nil || r.Context().Err() != nil {
			t.Errorf("%v, %v", err, r.Context().Err())
		}
		other.Unlock()
	})
	middleware.Serialize(c, middleware.Key("k"), nil)(h).ServeHTTP(httptest.NewRecorder(), post("/"))
	idle(t, c)
}

func TestPanicsUnlockAndGoOn(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	boom := errors.New("boom")
	for _, value := range []any{boom, http.ErrAbortHandler} {
		func() {
			defer func() {
				if p := recover(); p != value {
					t.Errorf("panic %v, want %v", p, value)
				}
			}()
			h := func(http.ResponseWriter, *http.Request) { panic(value) }
			middleware.Serialize(c, middleware.Key("k"), nil)(http.HandlerFunc(h)).ServeHTTP(httptest.NewRecorder(), post("/"))
			t.Error("returned")
		}()
		idle(t, c)
	}
}

func TestNestedSerializers(t *testing.T) {
	c, other := start(t, fallback.NewMemory(), nil), start(t, fallback.NewMemory(), nil)
	opts := &middleware.SerializeOptions{Wait: 5 * time.Second}
	a, b := middleware.Serialize(c, middleware.Key("a"), opts), middleware.Serialize(c, middleware.Key("b"), opts)
	elsewhere := middleware.Serialize(other, middleware.Key("a"), opts)
	var keys []string
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		l, _ := middleware.Lock(r.Context())
		keys = append(keys, l.Key())
		if c.Stats().Locked != 2 || other.Stats().Locked != 1 {
			t.Errorf("%d and %d locks", c.Stats().Locked, other.Stats().Locked)
		}
	})
	w := httptest.NewRecorder()
	a(b(elsewhere(b(a(h))))).ServeHTTP(w, post("/"))
	if w.Code != 200 || len(keys) != 1 {
		t.Errorf("%d, %q", w.Code, keys)
	}
	// One that was unlocked is taken again.
	early := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l, _ := middleware.Lock(r.Context())
		l.Unlock()
		a(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if again, _ := middleware.Lock(r.Context()); again.Fence() <= l.Fence() || again.Context().Err() != nil {
				t.Errorf("%d after %d", again.Fence(), l.Fence())
			}
		})).ServeHTTP(w, r)
	})
	a(early).ServeHTTP(httptest.NewRecorder(), post("/"))
	idle(t, c)
	idle(t, other)
}
