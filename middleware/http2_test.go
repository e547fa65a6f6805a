package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/middleware"
)

// overHTTP2 starts servers that speak HTTP/2 only, and whose clients do.
var overHTTP2 = map[string]func(testing.TB, http.Handler) *httptest.Server{
	"TLS": func(t testing.TB, h http.Handler) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		s.EnableHTTP2 = true
		return begin(t, s, s.StartTLS)
	},
	"h2c": func(t testing.TB, h http.Handler) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		begin(t, s, s.Start)
		s.Client().Transport.(*http.Transport).Protocols = s.Config.Protocols
		return s
	},
}

func begin(t testing.TB, s *httptest.Server, start func()) *httptest.Server {
	s.Config.ErrorLog = log.New(complaints{t}, "", 0)
	start()
	t.Cleanup(func() {
		s.Client().CloseIdleConnections()
		s.Close()
	})
	return s
}

// A stage is a handler behind one of the middlewares, on HTTP/2.
type stage struct {
	server  *httptest.Server // where requests are sent
	order   string
	method  string
	waiting func(n int) // waits until n requests do
	slow    bool        // a request waits with its body not sent yet
}

var stages = map[string]func(t *testing.T, serve func(testing.TB, http.Handler) *httptest.Server, h http.Handler) stage{
	"Serialize": func(t *testing.T, serve func(testing.TB, http.Handler) *httptest.Server, h http.Handler) stage {
		c := start(t, fallback.NewMemory(), nil)
		s := serve(t, middleware.Serialize(c, byOrder, nil)(h))
		return stage{s, "1", http.MethodPost, func(n int) { waiting(t, c, n) }, true}
	},
	"Route": func(t *testing.T, serve func(testing.TB, http.Handler) *httptest.Server, h http.Handler) stage {
		nodes := clusterOf(t, 2, serve, func(x *node) http.Handler {
			return x.routed(middleware.Serialize(x.c, byOrder, nil)(h).ServeHTTP)
		})
		x, owner := nodes[0], nodes[1]
		return stage{x.Server, orderOf(t, x, owner), http.MethodPost, func(n int) { waiting(t, owner.c, n) }, true}
	},
	"Idempotent": func(t *testing.T, serve func(testing.TB, http.Handler) *httptest.Server, h http.Handler) stage {
		c := start(t, fallback.NewMemory(), nil)
		s := serve(t, middleware.Idempotent(c, middleware.NewMemoryStore(nil), middleware.Unscoped, nil)(h))
		return stage{s, "1", http.MethodPost, func(n int) { waiting(t, c, n) }, false}
	},
	"Coalesce": func(t *testing.T, serve func(testing.TB, http.Handler) *httptest.Server, h http.Handler) stage {
		var mu sync.Mutex
		waits := -1 // the first one does not
		opts := &middleware.CoalesceOptions{Observe: func(_ *http.Request, how middleware.Coalesced) {
			mu.Lock()
			defer mu.Unlock()
			if how != middleware.CoalescedFirst {
				waits--
			}
		}}
		h = middleware.Coalesce(nil, byOrder, opts)(h)
		s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var once sync.Once
			h.ServeHTTP(w, r.WithContext(asking{r.Context(), func() { once.Do(func() { mu.Lock(); waits++; mu.Unlock() }) }}))
		}))
		return stage{s, "1", http.MethodGet, func(n int) {
			await.Until(t, "waiting requests", func() bool { mu.Lock(); defer mu.Unlock(); return waits == n })
		}, false}
	},
}

// ask sends a request in the background, and has the response read. It may be given a body that
// does not end.
func (s stage) ask(t *testing.T, ctx context.Context, body io.Reader, read func(*http.Response) error) <-chan error {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, s.method, s.server.URL+"/?order="+s.order, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k")
	done := make(chan error, 1)
	go func() {
		res, err := s.server.Client().Do(r)
		if err == nil {
			err = read(res)
			_ = res.Body.Close()
		}
		done <- err
	}()
	return done
}

// whole reads a response that must have the body, and the trailer X-Sum.
func whole(res *http.Response, body, sum string) error {
	b, err := io.ReadAll(res.Body)
	if err != nil || string(b) != body || res.StatusCode != http.StatusOK || res.Trailer.Get("X-Sum") != sum {
		return fmt.Errorf("%d %q, %w, trailer %v", res.StatusCode, b, err, res.Trailer)
	}
	return nil
}

func TestHTTP2Flush(t *testing.T) {
	t.Parallel()
	takes.Seconds(t)
	everywhere(t, func(t *testing.T, open func(http.Handler) stage) {
		flushed, proceed := make(chan error, 1), make(chan struct{})
		s := open(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.WriteString(w, "begin "+r.Proto+" ")
			flushed <- http.NewResponseController(w).Flush()
			<-proceed
			_, _ = io.WriteString(w, "end")
			w.Header().Set("X-Sum", "42")
			w.Header().Set(http.TrailerPrefix+"X-Late", "43")
		}))
		begun := make(chan string, 1)
		done := s.ask(t, t.Context(), nil, func(res *http.Response) error {
			head := make([]byte, len("begin HTTP/2.0 "))
			_, err := io.ReadFull(res.Body, head)
			begun <- string(head)
			if err = errors.Join(err, whole(res, "end", "42")); err == nil && (res.Trailer.Get("X-Late") != "43" || res.ProtoMajor != 2) {
				err = fmt.Errorf("%s, trailer %v", res.Proto, res.Trailer)
			}
			return err
		})
		if err := from(t, flushed, "the handler"); err != nil {
			t.Error(err)
		}
		if head := from(t, begun, "what was flushed"); head != "begin HTTP/2.0 " {
			t.Errorf("flushed: %q", head)
		}
		close(proceed)
		if err := from(t, done, "the end"); err != nil {
			t.Error(err)
		}
	})
}

// Some middlewares hold back an answer that is not flushed: it has its trailers all the same, and
// for each client that gets it.
func TestHTTP2Trailers(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, open func(http.Handler) stage) {
		s := open(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			if _, err := io.Copy(w, r.Body); err != nil {
				t.Error(err)
			}
			w.Header().Set("X-Sum", "42")
		}))
		for range 2 { // Idempotent replays the second one
			text := ""
			if s.method == http.MethodPost {
				text = "text"
			}
			done := s.ask(t, t.Context(), strings.NewReader(text), func(res *http.Response) error { return whole(res, text, "42") })
			if err := from(t, done, "an answer"); err != nil {
				t.Error(err)
			}
		}
	})
}

// A client that goes away resets its stream, and the connection goes on. Other than with HTTP/1
// that is noticed also while the request's body is still on its way.
func TestHTTP2ResetEndsTheWait(t *testing.T) {
	t.Parallel()
	takes.Seconds(t)
	everywhere(t, func(t *testing.T, open func(http.Handler) stage) {
		g := newGate()
		s := open(g)
		first := s.ask(t, t.Context(), nil, func(res *http.Response) error { return whole(res, "done", "") })
		from(t, g.in, "the first request")
		var body io.Reader
		if s.slow {
			pr, pw := io.Pipe()
			defer pw.Close()
			body = pr
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		second := s.ask(t, ctx, body, func(*http.Response) error { return nil })
		s.waiting(1)
		cancel()
		if err := from(t, second, "the client that left"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		s.waiting(0) // while the first one still runs
		select {
		case <-g.in:
			t.Error("the handler ran for a client that has gone")
		default:
		}
		close(g.out)
		if err := from(t, first, "the first request"); err != nil {
			t.Error(err)
		}
	})
}

// everywhere runs a test for each middleware, and each way to HTTP/2.
func everywhere(t *testing.T, test func(t *testing.T, open func(http.Handler) stage)) {
	for name, open := range stages {
		for by, serve := range overHTTP2 {
			t.Run(name+" over "+by, func(t *testing.T) {
				t.Parallel()
				test(t, func(h http.Handler) stage { return open(t, serve, h) })
			})
		}
	}
}
