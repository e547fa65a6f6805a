package middleware_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
)

// late works as Echo's adapter does: the error of a handler is written after the middleware has
// returned, by the ResponseWriter that the middleware gave to the handler.
func late(mw func(http.Handler) http.Handler, h func(http.ResponseWriter, *http.Request) (status int)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := 0
		inner := w
		mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			inner = w
			status = h(w, r)
		})).ServeHTTP(w, r)
		if status != 0 {
			inner.Header().Set("X-Error", "1")
			http.Error(inner, "the error", status)
		}
	})
}

// past works as many adapters for Gin do: the handler writes past the middleware.
func past(mw func(http.Handler) http.Handler, h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(outer http.ResponseWriter, r *http.Request) {
		mw(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { h(outer, r) })).ServeHTTP(outer, r)
	})
}

// A handler that has returned without an answer has not answered 200: an adapter writes the answer
// elsewhere.
func TestIdempotent_HandlerThatWritesNothing(t *testing.T) {
	for name, x := range map[string]struct {
		adapt  func(mw func(http.Handler) http.Handler, ran func()) http.Handler
		status int
		text   string
	}{
		"error that is written later": {func(mw func(http.Handler) http.Handler, ran func()) http.Handler {
			return late(mw, func(w http.ResponseWriter, _ *http.Request) int {
				ran()
				w.Header().Set("X-Handler", "1")
				return http.StatusTeapot
			})
		}, http.StatusTeapot, "the error"},
		"answer past the middleware": {func(mw func(http.Handler) http.Handler, ran func()) http.Handler {
			return past(mw, func(w http.ResponseWriter, _ *http.Request) {
				ran()
				w.Header().Set("X-Handler", "1")
				w.WriteHeader(http.StatusCreated)
				fmt.Fprint(w, "made")
			})
		}, http.StatusCreated, "made"},
		"nothing at all": {func(mw func(http.Handler) http.Handler, ran func()) http.Handler {
			return late(mw, func(w http.ResponseWriter, _ *http.Request) int {
				ran()
				w.Header().Set("X-Handler", "1")
				return 0
			})
		}, http.StatusOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var logged lockedBuffer
			c := start(t, fallback.NewMemory(), nil)
			runs := 0
			mw := middleware.Idempotent(c, middleware.NewMemoryStore(nil), middleware.Unscoped, &middleware.IdempotentOptions{
				Logger: slog.New(slog.NewTextHandler(&logged, nil)),
			})
			s := serving(t, x.adapt(mw, func() { runs++ }))
			first := exchange(t.Context(), s, "POST", "/", "body", "Idempotency-Key", "k")
			first.is(t, x.status, x.text)
			if first.Header.Get("X-Handler") != "1" {
				t.Errorf("the handler's header is missing: %v", first.Header)
			}
			again := exchange(t.Context(), s, "POST", "/", "body", "Idempotency-Key", "k")
			again.is(t, http.StatusConflict, middleware.TypeOutcome)
			if again.replayed() || runs != 1 {
				t.Errorf("replayed %v, %d runs", again.replayed(), runs)
			}
			if !strings.Contains(logged.String(), "level=ERROR") {
				t.Errorf("the log: %s", logged.String())
			}
			idle(t, c)
		})
	}
}

func TestCoalesce_HandlerThatWritesNothing(t *testing.T) {
	for name, adapt := range map[string]func(mw func(http.Handler) http.Handler, ran func()) http.Handler{
		"error that is written later": func(mw func(http.Handler) http.Handler, ran func()) http.Handler {
			return late(mw, func(http.ResponseWriter, *http.Request) int { ran(); return http.StatusTeapot })
		},
		"answer past the middleware": func(mw func(http.Handler) http.Handler, ran func()) http.Handler {
			return past(mw, func(w http.ResponseWriter, _ *http.Request) { ran(); http.Error(w, "the error", http.StatusTeapot) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			entered, release := make(chan struct{}, 10), make(chan struct{})
			once := sync.OnceFunc(func() { close(release) })
			var logged lockedBuffer
			h := adapt(middleware.Coalesce(nil, nil, &middleware.CoalesceOptions{Logger: slog.New(slog.NewTextHandler(&logged, nil))}), func() { entered <- struct{}{}; <-release })
			joined := make(chan struct{}, 10)
			s := serving(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var once sync.Once
				h.ServeHTTP(w, r.WithContext(asking{r.Context(), func() { once.Do(func() { joined <- struct{}{} }) }}))
			}))
			t.Cleanup(once)
			replies := make(chan reply, 3)
			for range 3 {
				go func() { replies <- exchange(t.Context(), s, "GET", "/", "") }()
				from(t, joined, "a request that leads or waits")
			}
			from(t, entered, "the first run")
			once()
			for range 3 {
				from(t, replies, "an answer").is(t, http.StatusTeapot, "the error")
			}
			if n := strings.Count(logged.String(), "level=WARN"); n != 1 {
				t.Errorf("%d warnings: %s", n, logged.String())
			}
		})
	}
}

// lockedBuffer is for logs that several goroutines write.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
