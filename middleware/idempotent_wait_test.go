package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/internal/virtual"
	"github.com/holdfast-go/holdfast/middleware"
)

// A hundred duplicates at once, sent to four servers: one run, and one answer for all.
func TestIdempotentConcurrentDuplicates(t *testing.T) {
	t.Parallel()
	takes.Seconds(t)
	redis := redistest.Start(t)
	for name, store := range map[string]middleware.Store{
		"memory": middleware.NewMemoryStore(nil), "redis": middleware.NewRedisStore(redis.Client(t), nil),
	} {
		t.Run(name, func(t *testing.T) {
			const n, servers = 100, 4
			release := make(chan struct{})
			free := sync.OnceFunc(func() { close(release) })
			defer free() // the server waits for its handlers
			s := open(t, servers, store, &middleware.IdempotentOptions{Wait: limit}, func(n int64, w http.ResponseWriter, r *http.Request) {
				<-release
				fmt.Fprintf(w, "run %d", n)
			})
			replies := make(chan reply, n)
			for i := range n {
				go func() { replies <- s.post(i%servers, "x") }()
			}
			from(t, s.entered, "the run")
			await.Until(t, "all but the first waiting", func() bool {
				sum := 0
				for _, c := range s.nodes {
					sum += c.Stats().Waiting
				}
				return sum == n-1
			})
			free()
			replayed := 0
			for range n {
				r := from(t, replies, "an answer")
				r.is(t, http.StatusOK, "run 1")
				if r.replayed() {
					replayed++
				}
			}
			if s.runs.Load() != 1 || replayed != n-1 {
				t.Errorf("%d runs, %d replays", s.runs.Load(), replayed)
			}
		})
	}
}

func TestIdempotentWaitsOnlySoLong(t *testing.T) {
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	defer free() // the server waits for its handlers
	s := open(t, 2, nil, &middleware.IdempotentOptions{Wait: -1}, func(n int64, w http.ResponseWriter, r *http.Request) {
		<-release
		fmt.Fprint(w, n)
	})
	first := make(chan reply, 1)
	go func() { first <- s.post(0, "x") }()
	from(t, s.entered, "the run")
	for i := range 2 {
		r := s.post(i, "x")
		r.is(t, http.StatusConflict, middleware.TypeInProgress)
		if r.Header.Get("Retry-After") != "1" || r.Header.Get("Content-Type") != "application/problem+json" {
			t.Error(r.Header)
		}
	}
	s.post(0, "another").is(t, http.StatusUnprocessableEntity, middleware.TypeReused) // that is known already
	free()
	r := from(t, first, "the answer")
	r.is(t, http.StatusOK, "1")
	s.post(1, "x").is(t, http.StatusOK, "1")
}

func TestIdempotentWaitLimit(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		c := start(t, fallback.NewMemory(), nil)
		release := make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		defer free() // the server waits for its handlers
		h := middleware.Idempotent(c, middleware.NewMemoryStore(nil), middleware.Unscoped, &middleware.IdempotentOptions{Wait: 3 * time.Second})(
			http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { <-release; w.WriteHeader(http.StatusOK) }))
		post := func() *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Header.Set("Idempotency-Key", "k")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		first := make(chan *httptest.ResponseRecorder)
		go func() { first <- post() }()
		synctest.Wait()
		begin := time.Now()
		if w := post(); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), middleware.TypeInProgress) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if d := time.Since(begin); d != 3*time.Second {
			t.Errorf("waited for %v", d)
		}
		free()
		if w := <-first; w.Code != http.StatusOK {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if w := post(); w.Header().Get(middleware.ReplayedHeader) == "" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// The client goes away while the handler runs: the handler goes on, and the client finds its
// answer.
func TestIdempotentClientLeaves(t *testing.T) {
	for _, follow := range []bool{false, true} {
		noticed, release := make(chan struct{}, 1), make(chan struct{})
		free := sync.OnceFunc(func() { close(release) })
		defer free()
		s := open(t, 1, nil, &middleware.IdempotentOptions{FollowClient: follow}, func(n int64, w http.ResponseWriter, r *http.Request) {
			if n == 1 {
				select {
				case <-r.Context().Done():
					noticed <- struct{}{}
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				case <-release:
				}
			}
			fmt.Fprint(w, n)
		})
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan reply, 1)
		go func() {
			gone <- exchange(ctx, s.servers[0], "POST", "/pay?a=b", "x", "Idempotency-Key", "k", "Host", "shop")
		}()
		from(t, s.entered, "the run")
		leave()
		if r := from(t, gone, "the end"); r.err == nil {
			t.Error("an answer for nobody")
		}
		if follow {
			from(t, noticed, "the end of the handler's context")
			s.post(0, "x").is(t, http.StatusOK, "2")
			continue
		}
		again := make(chan reply, 1)
		go func() { again <- s.post(0, "x") }()
		waiting(t, s.nodes[0], 1)
		free()
		r := from(t, again, "the answer")
		r.is(t, http.StatusOK, "1")
		if !r.replayed() || s.runs.Load() != 1 {
			t.Errorf("%v, %d runs", r.Header, s.runs.Load())
		}
	}
}

func TestIdempotentWaitingClientLeaves(t *testing.T) {
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	defer free() // the server waits for its handlers
	s := open(t, 1, nil, nil, func(n int64, w http.ResponseWriter, r *http.Request) {
		<-release
		fmt.Fprint(w, n)
	})
	first, second := make(chan reply, 1), make(chan reply, 1)
	go func() { first <- s.post(0, "x") }()
	from(t, s.entered, "the run")
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		second <- exchange(ctx, s.servers[0], "POST", "/pay?a=b", "x", "Idempotency-Key", "k", "Host", "shop")
	}()
	waiting(t, s.nodes[0], 1)
	leave()
	waiting(t, s.nodes[0], 0)
	if r := from(t, second, "the end"); r.err == nil {
		t.Error(r.body)
	}
	free()
	from(t, first, "the answer").is(t, http.StatusOK, "1")
}

// More than so many do not wait: they are told at once, and nothing of them is kept.
func TestIdempotentMaxWaiters(t *testing.T) {
	for most, told := range map[int]int{2: 3, -1: 0, 0: 0} { // 0: the default is more than that
		proceed := make(chan struct{})
		s := open(t, 1, nil, &middleware.IdempotentOptions{MaxWaiters: most}, func(_ int64, w http.ResponseWriter, _ *http.Request) { <-proceed; w.WriteHeader(http.StatusOK) })
		replies := make(chan reply, 6)
		post := func() { replies <- s.post(0, "1 EUR") }
		go post()
		from(t, s.entered, "the first request")
		for range 5 {
			go post()
		}
		for range told {
			r := from(t, replies, "one that does not wait")
			r.is(t, http.StatusConflict, "TypeInProgress")
			if r.Header.Get("Retry-After") != "1" {
				t.Errorf("%d: Retry-After is %q", most, r.Header.Get("Retry-After"))
			}
		}
		waiting(t, s.nodes[0], 5-told)
		close(proceed)
		for range 6 - told {
			from(t, replies, "an answer").is(t, http.StatusOK, "")
		}
		if s.runs.Load() != 1 {
			t.Errorf("%d: %d runs", most, s.runs.Load())
		}
		idle(t, s.nodes[0])
	}
}

func TestIdempotentPlacesAreFreeAgain(t *testing.T) {
	s := open(t, 1, nil, &middleware.IdempotentOptions{MaxWaiters: 1}, func(_ int64, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable) // not final
	})
	for range 5 {
		s.post(0, "").is(t, http.StatusServiceUnavailable, "")
	}
	if s.runs.Load() != 5 {
		t.Errorf("%d runs", s.runs.Load())
	}
}
