package ordertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/go-chi/cors"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	holdfast "github.com/holdfast-go/holdfast/middleware"
)

type around = func(http.Handler) http.Handler

// A bench has a middleware of another package, outside or inside of ours.
type bench struct {
	*testing.T
	outside bool
	other   around
	c       *coord.Coordinator
	runs    atomic.Int64
}

// both runs a test in both orders.
func both(t *testing.T, other around, f func(b *bench)) {
	for name, outside := range map[string]bool{"outside": true, "inside": false} {
		t.Run(name, func(t *testing.T) {
			c, err := coord.New(t.Context(), fallback.NewMemory(), nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close(context.Background()) })
			f(&bench{T: t, outside: outside, other: other, c: c})
		})
	}
}

func byOrder(r *http.Request) (string, error) { return "order", nil }

func (b *bench) serialize() around {
	return holdfast.Serialize(b.c, byOrder, &holdfast.SerializeOptions{Wait: -1})
}

func (b *bench) idempotent() around {
	return holdfast.Idempotent(b.c, holdfast.NewMemoryStore(nil), holdfast.Unscoped, nil)
}

// serve starts a server with a handler in ours and the other middleware, and returns a function
// that sends requests to it.
func (b *bench) serve(ours around, h http.HandlerFunc) func(body string, headers ...string) answer {
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.runs.Add(1); h(w, r) })
	handler := ours(b.other(counted))
	if b.outside {
		handler = b.other(ours(counted))
	}
	s := httptest.NewUnstartedServer(handler)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // panics
	s.Start()
	b.Cleanup(s.Close)
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	b.Cleanup(client.CloseIdleConnections)
	return func(body string, headers ...string) answer {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, s.URL, strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "k")
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		res, err := client.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return answer{b, res.StatusCode, res.Header, string(text)}
	}
}

type answer struct {
	b      *bench
	status int
	header http.Header
	body   string
}

func (a answer) is(status int, text string) answer {
	a.b.Helper()
	if a.status != status || !strings.Contains(a.body, text) {
		a.b.Errorf("%d %q, want %d and %q", a.status, a.body, status, text)
	}
	return a
}

// free waits until nothing is locked.
func (b *bench) free() {
	b.Helper()
	await.Until(b, "no lock is left", func() bool { return b.c.Stats().Locked == 0 })
}

func (b *bench) ran(n int64) {
	b.Helper()
	if got := b.runs.Load(); got != n {
		b.Errorf("%d runs, want %d", got, n)
	}
}

func TestTimeoutHandler(t *testing.T) {
	timeout := func(h http.Handler) http.Handler { return http.TimeoutHandler(h, 30*time.Millisecond, "too slow") }
	t.Run("Serialize", func(t *testing.T) {
		both(t, timeout, func(b *bench) {
			proceed := make(chan struct{})
			post := b.serve(b.serialize(), func(http.ResponseWriter, *http.Request) { <-proceed })
			post("").is(http.StatusServiceUnavailable, "too slow")
			post("").is(http.StatusLocked, "") // the handler runs on, with the lock
			close(proceed)
			b.free()
			b.ran(1)
		})
	})
	t.Run("Idempotent", func(t *testing.T) {
		both(t, timeout, func(b *bench) {
			proceed := make(chan struct{})
			post := b.serve(b.idempotent(), func(w http.ResponseWriter, _ *http.Request) { <-proceed; fmt.Fprint(w, "paid") })
			post("").is(http.StatusServiceUnavailable, "too slow")
			close(proceed)
			b.free()
			if b.outside {
				post("").is(http.StatusOK, "paid")
			} else {
				post("").is(http.StatusConflict, holdfast.TypeOutcome)
			}
			b.ran(1)
		})
	})
}

func TestMaxBytesHandler(t *testing.T) {
	limited := func(h http.Handler) http.Handler { return http.MaxBytesHandler(h, 10) }
	read := func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			http.Error(w, "the handler's", http.StatusRequestEntityTooLarge)
		}
	}
	t.Run("Serialize", func(t *testing.T) {
		both(t, limited, func(b *bench) {
			b.serve(b.serialize(), read)("more than that").is(http.StatusRequestEntityTooLarge, "the handler's")
			b.free()
		})
	})
	t.Run("Idempotent", func(t *testing.T) {
		both(t, limited, func(b *bench) {
			post := b.serve(b.idempotent(), read)
			for range 2 {
				a := post("more than that")
				if b.outside {
					a.is(http.StatusRequestEntityTooLarge, holdfast.TypeTooLarge)
				} else {
					a.is(http.StatusRequestEntityTooLarge, "the handler's")
				}
			}
			if b.outside {
				b.ran(0)
			} else {
				b.ran(1)
			}
		})
	})
}

func TestChiTimeout(t *testing.T) {
	limited := middleware.Timeout(30 * time.Millisecond)
	heeds := func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done(): // chi answers
		case <-time.After(300 * time.Millisecond):
			fmt.Fprint(w, "done")
		}
	}
	t.Run("Serialize", func(t *testing.T) {
		both(t, limited, func(b *bench) {
			b.serve(b.serialize(), heeds)("").is(http.StatusGatewayTimeout, "")
			b.free()
		})
	})
	t.Run("Serialize, while it waits", func(t *testing.T) {
		both(t, limited, func(b *bench) {
			l, err := b.c.Lock(t.Context(), "order")
			if err != nil {
				t.Fatal(err)
			}
			const wait = 300 * time.Millisecond
			post := b.serve(holdfast.Serialize(b.c, byOrder, &holdfast.SerializeOptions{Wait: wait}), heeds)
			begin := time.Now()
			post("").is(http.StatusLocked, "")
			if waited := time.Since(begin); !b.outside && waited < wait {
				t.Errorf("the limit inside ended the wait after %v", waited)
			}
			l.Unlock()
			b.ran(0)
		})
	})
	t.Run("Idempotent", func(t *testing.T) {
		both(t, limited, func(b *bench) {
			post := b.serve(b.idempotent(), heeds)
			if b.outside { // it goes on for repeated requests
				post("").is(http.StatusOK, "done")
			} else {
				post("").is(http.StatusGatewayTimeout, "")
			}
		})
	})
}

func TestChiCompress(t *testing.T) {
	text := strings.Repeat("text ", 1000)
	both(t, middleware.Compress(5), func(b *bench) {
		post := b.serve(b.idempotent(), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			io.WriteString(w, text)
		})
		if a := post("", "Accept-Encoding", "gzip"); a.header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%v", a.header)
		}
		again := post("", "Accept-Encoding", "identity")
		if plain := again.body == text && again.header.Get("Content-Encoding") == ""; plain != b.outside {
			t.Errorf("the repeated request got %v", again.header)
		}
		b.ran(1)
	})
}

func TestChiRecoverer(t *testing.T) {
	fails := func(http.ResponseWriter, *http.Request) { panic("it fails") }
	t.Run("Serialize", func(t *testing.T) {
		both(t, middleware.Recoverer, func(b *bench) {
			b.serve(b.serialize(), fails)("").is(http.StatusInternalServerError, "")
			b.free()
		})
	})
	t.Run("Idempotent", func(t *testing.T) {
		both(t, middleware.Recoverer, func(b *bench) {
			post := b.serve(b.idempotent(), fails)
			post("").is(http.StatusInternalServerError, "")
			if b.outside {
				post("").is(http.StatusConflict, holdfast.TypeOutcome)
			} else {
				post("").is(http.StatusInternalServerError, "")
			}
			b.ran(1)
		})
	})
}

func TestOtelhttp(t *testing.T) {
	for name, x := range map[string]struct{ outside, inside int }{"refused by Serialize": {1, 0}, "replayed by Idempotent": {2, 1}} {
		t.Run(name, func(t *testing.T) {
			var spans *tracetest.SpanRecorder
			traced := func(h http.Handler) http.Handler {
				spans = tracetest.NewSpanRecorder()
				return otelhttp.NewHandler(h, "request", otelhttp.WithTracerProvider(trace.NewTracerProvider(trace.WithSpanProcessor(spans))))
			}
			both(t, traced, func(b *bench) {
				want := x.inside
				if b.outside {
					want = x.outside
				}
				paid := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "paid") }
				if strings.Contains(name, "Serialize") {
					l, err := b.c.Lock(t.Context(), "order")
					if err != nil {
						t.Fatal(err)
					}
					defer l.Unlock()
					b.serve(b.serialize(), paid)("").is(http.StatusLocked, "")
				} else {
					post := b.serve(b.idempotent(), paid)
					post("").is(http.StatusOK, "paid")
					post("").is(http.StatusOK, "paid")
				}
				// The span ends after the answer.
				await.Until(t, "spans end", func() bool { return len(spans.Ended()) >= want })
				if got := len(spans.Ended()); got != want {
					t.Errorf("%d spans, want %d", got, want)
				}
			})
		})
	}
}

func TestCORS(t *testing.T) {
	const allow = "Access-Control-Allow-Origin"
	allowed := cors.Handler(cors.Options{AllowedOrigins: []string{"https://a", "https://b"}})
	t.Run("Serialize, a request that is refused", func(t *testing.T) {
		both(t, allowed, func(b *bench) {
			l, err := b.c.Lock(t.Context(), "order")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Unlock()
			a := b.serve(b.serialize(), func(http.ResponseWriter, *http.Request) {})("", "Origin", "https://a").is(http.StatusLocked, "")
			if readable := a.header.Get(allow) == "https://a"; readable != b.outside {
				t.Errorf("%v", a.header)
			}
		})
	})
	t.Run("Idempotent, a request that is repeated from elsewhere", func(t *testing.T) {
		both(t, allowed, func(b *bench) {
			post := b.serve(b.idempotent(), func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "paid") })
			post("", "Origin", "https://a").is(http.StatusOK, "paid")
			a := post("", "Origin", "https://b").is(http.StatusOK, "paid")
			if readable := a.header.Get(allow) == "https://b"; readable != b.outside {
				t.Errorf("%v", a.header)
			}
		})
	})
}
