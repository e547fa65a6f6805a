package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/middleware"
)

// failing is a store that fails when it is told to.
type failing struct {
	middleware.Store
	get, put atomic.Pointer[func(ctx context.Context) error] // nil, or returning nil: as usual
}

func (f *failing) Get(ctx context.Context, key string) ([]byte, error) {
	if g := f.get.Load(); g != nil {
		if err := (*g)(ctx); err != nil {
			return nil, err
		}
	}
	return f.Store.Get(ctx, key)
}

func (f *failing) Put(ctx context.Context, key string, record []byte, fence uint64, ttl time.Duration) error {
	if p := f.put.Load(); p != nil {
		if err := (*p)(ctx); err != nil {
			return err
		}
	}
	return f.Store.Put(ctx, key, record, fence, ttl)
}

func newFailing() *failing { return &failing{Store: middleware.NewMemoryStore(nil)} }

// fail makes the next n calls fail.
func fail(at *atomic.Pointer[func(context.Context) error], n int64) {
	var done atomic.Int64
	f := func(context.Context) error {
		if done.Add(1) <= n {
			return errors.New("secret of the store")
		}
		return nil
	}
	at.Store(&f)
}

func TestIdempotentStoreIsAway(t *testing.T) {
	store := newFailing()
	s := open(t, 1, store, nil, func(n int64, w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, n) })
	for name, injure := range map[string]func(){
		"the first look":                            func() { fail(&store.get, 1) },
		"the start cannot be stored":                func() { fail(&store.put, 1) },
		"nor that nothing has happened":             func() { fail(&store.put, 2) },
		"the look with the lock, the second of two": func() { var n atomic.Int64; f := second(&n); store.get.Store(&f) },
	} {
		injure()
		r := s.post(0, "x")
		r.is(t, http.StatusServiceUnavailable, middleware.TypeUnavailable)
		if strings.Contains(r.body, "secret") || r.Header.Get("Retry-After") != "1" || s.runs.Load() != 0 {
			t.Errorf("%s: %v %q, %d runs", name, r.Header, r.body, s.runs.Load())
		}
		idle(t, s.nodes[0])
	}
	s.post(0, "x").is(t, http.StatusOK, "1")
}

func second(n *atomic.Int64) func(context.Context) error {
	return func(context.Context) error {
		if n.Add(1) == 2 {
			return errors.New("secret of the store")
		}
		return nil
	}
}

func TestIdempotentStoreIsSlow(t *testing.T) {
	store := newFailing()
	slow := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	s := open(t, 1, store, &middleware.IdempotentOptions{StoreTimeout: time.Millisecond}, func(int64, http.ResponseWriter, *http.Request) {})
	store.get.Store(&slow)
	s.post(0, "x").is(t, http.StatusServiceUnavailable, "")
	store.get.Store(nil)
	store.put.Store(&slow)
	s.post(0, "x").is(t, http.StatusServiceUnavailable, "")
	if s.runs.Load() != 0 {
		t.Error("the handler ran")
	}
}

func TestIdempotentRecordThatCannotBeRead(t *testing.T) {
	store := middleware.NewMemoryStore(nil)
	s := open(t, 1, overwriting{store}, nil, func(int64, http.ResponseWriter, *http.Request) {})
	s.post(0, "x").is(t, http.StatusOK, "")
	s.post(0, "x").is(t, http.StatusServiceUnavailable, middleware.TypeUnavailable)
	if s.runs.Load() != 1 {
		t.Errorf("%d runs", s.runs.Load())
	}
}

// overwriting stores something else.
type overwriting struct{ middleware.Store }

func (o overwriting) Put(ctx context.Context, key string, _ []byte, fence uint64, ttl time.Duration) error {
	return o.Store.Put(ctx, key, []byte("another program's"), fence, ttl)
}

// The handler has run, but that is all that is known.
func TestIdempotentAnswerCannotBeStored(t *testing.T) {
	for _, rerun := range []bool{false, true} {
		store, logs := newFailing(), new(bytes.Buffer)
		s := open(t, 2, store, &middleware.IdempotentOptions{Rerun: rerun, Logger: slog.New(slog.NewTextHandler(logs, nil))},
			func(n int64, w http.ResponseWriter, _ *http.Request) {
				if n == 1 {
					fail(&store.put, 1)
				}
				fmt.Fprint(w, n)
			})
		s.post(0, "x").is(t, http.StatusOK, "1") // it is known here
		if !strings.Contains(logs.String(), "secret of the store") {
			t.Errorf("log: %s", logs)
		}
		for i := range 2 {
			if r := s.post(i, "x"); rerun {
				r.is(t, http.StatusOK, "2")
			} else {
				r.is(t, http.StatusConflict, middleware.TypeOutcome)
			}
		}
		s.post(1, "another").is(t, http.StatusUnprocessableEntity, middleware.TypeReused)
	}
}

// One node loses its lock while its handler runs, as if it had been stopped for too long; another
// one gets the same request.
func TestIdempotentLockLost(t *testing.T) {
	for _, rerun := range []bool{false, true} {
		release := make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		defer free() // the server waits for its handlers
		cause := make(chan error, 1)
		s := open(t, 2, nil, &middleware.IdempotentOptions{Rerun: rerun}, func(n int64, w http.ResponseWriter, r *http.Request) {
			if n == 1 {
				<-r.Context().Done()
				cause <- context.Cause(r.Context())
				<-release
			}
			fmt.Fprintf(w, "run %d", n)
		})
		s.losing = true
		first := make(chan reply, 1)
		go func() { first <- s.post(0, "x") }()
		from(t, s.entered, "the run")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		s.nodes[0].Close(ended) // it does not wait: the lock is lost
		if err := from(t, cause, "the end of the handler's context"); !errors.Is(err, coord.ErrLost) {
			t.Error(err)
		}
		if r := s.post(1, "x"); rerun {
			r.is(t, http.StatusOK, "run 2")
		} else {
			r.is(t, http.StatusConflict, middleware.TypeOutcome)
		}
		free()
		r := from(t, first, "the first answer")
		if rerun { // it was executed again, and that one's answer counts
			r.is(t, http.StatusConflict, middleware.TypeOutcome)
			s.post(1, "x").is(t, http.StatusOK, "run 2")
		} else { // no run came after it
			r.is(t, http.StatusOK, "run 1")
			s.post(1, "x").is(t, http.StatusOK, "run 1")
		}
	}
}

// A client that says how much it will send, and then goes away, must not leave anything behind.
func TestIdempotentBodyBreaksOff(t *testing.T) {
	s := open(t, 1, nil, nil, func(int64, http.ResponseWriter, *http.Request) {})
	body, w := io.Pipe()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.servers[0].URL, body)
	r.Header.Set("Idempotency-Key", "k")
	done := make(chan error, 1)
	go func() {
		resp, err := s.servers[0].Client().Do(r)
		if err == nil {
			resp.Body.Close()
		}
		done <- err
	}()
	w.Write([]byte("half"))
	w.CloseWithError(errors.New("no more"))
	if err := from(t, done, "the end"); err == nil {
		t.Error("half a request was answered")
	}
	s.servers[0].Close() // waits for the request
	if s.runs.Load() != 0 {
		t.Error("half a request was executed")
	}
	idle(t, s.nodes[0])
}
