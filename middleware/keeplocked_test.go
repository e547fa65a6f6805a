package middleware_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/middleware"
)

const soon = 20 * time.Millisecond // a time limit that passes in each test

// passing is a middleware that the others cannot look into.
func passing(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r) })
}

// timeouts are time limits that answer while their handler runs on, inside of a middleware that
// holds a lock.
var timeouts = map[string]func(h http.Handler) http.Handler{
	"TimeoutHandler": func(h http.Handler) http.Handler { return http.TimeoutHandler(h, soon, "too slow") },
	"TimeoutHandler further in, with KeepLocked": func(h http.Handler) http.Handler {
		return passing(http.TimeoutHandler(passing(middleware.KeepLocked(h)), soon, "too slow"))
	},
	"TimeoutHandler with KeepLocked": func(h http.Handler) http.Handler {
		return http.TimeoutHandler(middleware.KeepLocked(h), soon, "too slow")
	},
}

// The lock is held until the handler has ended, and not just until the client has got an answer.
func TestSerialize_TimeoutHandler(t *testing.T) {
	for name, timeout := range timeouts {
		t.Run(name, func(t *testing.T) {
			c := start(t, fallback.NewMemory(), nil)
			var running, most, runs atomic.Int64
			proceed := make(chan struct{})
			s := serving(t, middleware.Serialize(c, byOrder, nil)(timeout(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if _, ok := middleware.Lock(r.Context()); !ok {
					t.Error("no lock")
				}
				if n := running.Add(1); n > most.Load() {
					most.Store(n)
				}
				runs.Add(1)
				<-proceed
				running.Add(-1)
			}))))
			const n = 6
			replies := make(chan reply, n)
			for range n {
				go func() { replies <- exchange(t.Context(), s, "POST", "/?order=1", "") }()
			}
			for range n { // each is answered while its handler runs on, and the others wait
				await.Until(t, "a run of the handler", func() bool { return running.Load() == 1 })
				from(t, replies, "an answer").is(t, http.StatusServiceUnavailable, "too slow")
				if l, err := c.TryLock(t.Context(), "order/1"); err == nil {
					t.Error("the lock is free while the handler runs")
					l.Unlock()
				}
				before := runs.Load()
				proceed <- struct{}{}
				if before < n {
					await.Until(t, "the next run", func() bool { return runs.Load() > before })
				}
			}
			idle(t, c)
			if most.Load() != 1 || runs.Load() != n {
				t.Errorf("%d at once, %d runs", most.Load(), runs.Load())
			}
		})
	}
}

// A request is executed once, also if its handler runs on when the client has got its answer.
func TestIdempotent_TimeoutHandler(t *testing.T) {
	for name, timeout := range timeouts {
		t.Run(name, func(t *testing.T) {
			c := start(t, fallback.NewMemory(), nil)
			var runs atomic.Int64
			proceed := make(chan struct{})
			s := serving(t, middleware.Idempotent(c, middleware.NewMemoryStore(nil), middleware.Unscoped, &middleware.IdempotentOptions{Wait: -1})(
				timeout(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					runs.Add(1)
					<-proceed
					fmt.Fprint(w, "paid")
				}))))
			post := func() reply { return exchange(t.Context(), s, "POST", "/", "", "Idempotency-Key", "k") }
			post().is(t, http.StatusServiceUnavailable, "too slow")
			post().is(t, http.StatusConflict, middleware.TypeInProgress)
			close(proceed)
			idle(t, c)
			post().is(t, http.StatusConflict, middleware.TypeOutcome)
			if runs.Load() != 1 {
				t.Errorf("%d runs", runs.Load())
			}
		})
	}
}

// In time, a TimeoutHandler is as good as none.
func TestKeepLocked_InTime(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	runs := 0
	h := http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		runs++
		fmt.Fprint(w, "paid ", runs)
	}), limit, "too slow")
	serialize := middleware.Serialize(c, byOrder, nil)
	idempotent := middleware.Idempotent(c, middleware.NewMemoryStore(nil), middleware.Unscoped, nil)
	s := serving(t, idempotent(serialize(h)))
	for range 3 {
		exchange(t.Context(), s, "POST", "/?order=1", "", "Idempotency-Key", "k").is(t, http.StatusOK, "paid 1")
	}
	exchange(t.Context(), s, "POST", "/?order=1", "", "Idempotency-Key", "l").is(t, http.StatusOK, "paid 2")
	idle(t, c)
}

// A handler that would begin after its lock was given back does not run.
func TestKeepLocked_TooLate(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	ran := false
	late := make(chan func(), 1)
	s := serving(t, middleware.Serialize(c, byOrder, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := middleware.KeepLocked(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran = true }))
		late <- func() { h.ServeHTTP(w, r) }
	})))
	exchange(t.Context(), s, "POST", "/?order=1", "").is(t, http.StatusOK, "")
	(<-late)()
	if ran {
		t.Error("the handler ran without the lock")
	}
	idle(t, c)
}

// Where Serialize cannot know that a handler runs on, the log says so when the handler asks for its
// lock.
func TestSerialize_HandlerThatRunsOn(t *testing.T) {
	var logged lockedBuffer
	c := start(t, fallback.NewMemory(), nil)
	ask, asked := make(chan struct{}), make(chan struct{})
	s := serving(t, middleware.Serialize(c, byOrder, &middleware.SerializeOptions{Logger: slog.New(slog.NewTextHandler(&logged, nil))})(
		passing(http.TimeoutHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			defer close(asked)
			<-ask
			for range 3 {
				middleware.Lock(context.WithoutCancel(r.Context()))
			}
		}), soon, "too slow"))))
	exchange(t.Context(), s, "POST", "/?order=1", "").is(t, http.StatusServiceUnavailable, "too slow")
	idle(t, c)
	close(ask)
	from(t, asked, "the end of the handler")
	if n := strings.Count(logged.String(), "level=ERROR"); n != 1 || !strings.Contains(logged.String(), "KeepLocked") {
		t.Errorf("%d records: %s", n, logged.String())
	}
}
