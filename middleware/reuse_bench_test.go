package middleware_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/middleware"
)

// nowhere is a ResponseWriter that costs nothing.
type nowhere struct{ h http.Header }

func (n nowhere) Header() http.Header         { return n.h }
func (n nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (n nowhere) WriteHeader(int)             {}

var small = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })

func measure(b *testing.B, h http.Handler, r *http.Request, body string) {
	b.ReportAllocs()
	for b.Loop() {
		r.Body = http.NoBody
		if body != "" {
			r.Body = io.NopCloser(strings.NewReader(body))
		}
		h.ServeHTTP(nowhere{make(http.Header)}, r)
	}
}

func BenchmarkNoMiddleware(b *testing.B) {
	measure(b, small, httptest.NewRequest(http.MethodGet, "/", nil), "")
}

func BenchmarkCoalesce(b *testing.B) {
	h := middleware.Coalesce(nil, middleware.Query("q"), nil)(small)
	b.Run("pass", func(b *testing.B) { measure(b, h, httptest.NewRequest(http.MethodPut, "/?q=1", nil), "") })
	b.Run("first", func(b *testing.B) { measure(b, h, httptest.NewRequest(http.MethodGet, "/?q=1", nil), "") })
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(16)
		b.RunParallel(func(pb *testing.PB) {
			r := httptest.NewRequest(http.MethodGet, "/?q=1", nil)
			for pb.Next() {
				h.ServeHTTP(nowhere{make(http.Header)}, r)
			}
		})
	})
}

func BenchmarkIdempotent(b *testing.B) {
	c := start(b, fallback.NewMemory(), nil)
	redis := redistest.Start(b)
	for name, store := range map[string]middleware.Store{
		"memory": middleware.NewMemoryStore(nil), "redis": middleware.NewRedisStore(redis.Client(b), nil),
	} {
		mw := middleware.Idempotent(c, store, middleware.Unscoped, nil)
		again := middleware.Idempotent(c, store, middleware.Unscoped, &middleware.IdempotentOptions{Final: func(int) bool { return false }})
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("body"))
		b.Run(name+"/pass", func(b *testing.B) { measure(b, mw(small), r, "body") })
		r.Header.Set("Idempotency-Key", "replay")
		b.Run(name+"/replay", func(b *testing.B) { measure(b, mw(small), r, "body") })
		r.Header.Set("Idempotency-Key", "execute")
		b.Run(name+"/execute", func(b *testing.B) { measure(b, again(small), r, "body") })
	}
}
