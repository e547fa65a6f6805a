package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
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
		s := serve(t, middleware.Idempotent(c, middleware.NewMemoryStore(nil), nil)(h))
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
			await(t, "waiting requests", func() bool { mu.Lock(); defer mu.Unlock(); return waits == n })
		}, false}
	},
}

// ask sends a request in the background. It may be given a body that does not end.
func (s stage) ask(t *testing.T, ctx context.Context, key string, body io.Reader) (<-chan *http.Response, <-chan error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, s.method, s.server.URL+"/?order="+s.order, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", key)
	got, failed := make(chan *http.Response, 1), make(chan error, 1)
	go func() {
		res, err := s.server.Client().Do(r)
		if err != nil {
			failed <- err
			return
		}
		got <- res
	}()
	return got, failed
}

func TestHTTP2Flush(t *testing.T) {
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
		got, failed := s.ask(t, t.Context(), "k", nil)
		if err := from(t, flushed, "the handler"); err != nil {
			t.Error(err)
		}
		var res *http.Response
		select {
		case res = <-got:
		case err := <-failed:
			t.Fatal(err)
		}
		defer res.Body.Close()
		const begin = "begin HTTP/2.0 "
		head := make([]byte, len(begin))
		if _, err := io.ReadFull(res.Body, head); err != nil || string(head) != begin || res.ProtoMajor != 2 {
			t.Errorf("flushed: %q, %v, by %s", head, err, res.Proto)
		}
		close(proceed)
		rest, err := io.ReadAll(res.Body)
		if string(rest) != "end" || err != nil {
			t.Errorf("then: %q, %v", rest, err)
		}
		if res.Trailer.Get("X-Sum") != "42" || res.Trailer.Get("X-Late") != "43" {
			t.Errorf("trailer: %v", res.Trailer)
		}
	})
}

// What is not flushed is held back by some: it has its trailers all the same, and for everybody who gets it.
func TestHTTP2Trailers(t *testing.T) {
	everywhere(t, func(t *testing.T, open func(http.Handler) stage) {
		s := open(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			w.Header().Set("Trailer", "X-Sum")
			_, _ = io.WriteString(w, string(b))
			w.Header().Set("X-Sum", "42")
			w.Header().Set(http.TrailerPrefix+"X-Late", r.Trailer.Get("X-Sent"))
			if err != nil {
				t.Error(err)
			}
		}))
		for i := range 2 { // Idempotent replays the second one
			var body io.Reader
			if s.method == http.MethodPost {
				body = bytes.NewReader([]byte("text"))
			}
			got, failed := s.ask(t, t.Context(), "k", body)
			select {
			case res := <-got:
				b, err := io.ReadAll(res.Body)
				_ = res.Body.Close()
				if err != nil || res.Trailer.Get("X-Sum") != "42" || body != nil && string(b) != "text" {
					t.Errorf("%d: %q, %v, trailer %v", i, b, err, res.Trailer)
				}
			case err := <-failed:
				t.Fatal(err)
			}
		}
	})
}

// A client that goes away resets its stream, and the connection goes on. Other than with HTTP/1 that is noticed also while the
// request's body is still on its way.
func TestHTTP2ResetEndsTheWait(t *testing.T) {
	everywhere(t, func(t *testing.T, open func(http.Handler) stage) {
		g := newGate()
		s := open(g)
		first, failed := s.ask(t, t.Context(), "k", nil)
		from(t, g.in, "the first request")
		var body io.Reader
		if s.slow {
			pr, pw := io.Pipe()
			defer pw.Close()
			body = pr
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, gone := s.ask(t, ctx, "k", body)
		s.waiting(1)
		cancel()
		if err := from(t, gone, "the client that left"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		s.waiting(0) // while the first one still runs
		select {
		case <-g.in:
			t.Error("the handler ran for a client that has gone")
		default:
		}
		close(g.out)
		select {
		case res := <-first:
			b, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if res.StatusCode != http.StatusOK || string(b) != "done" || err != nil {
				t.Errorf("the first request: %d %q, %v", res.StatusCode, b, err)
			}
		case err := <-failed:
			t.Fatal(err)
		}
	})
}

// everywhere runs a test for each middleware, and each way to HTTP/2.
func everywhere(t *testing.T, test func(t *testing.T, open func(http.Handler) stage)) {
	for name, open := range stages {
		for by, serve := range overHTTP2 {
			t.Run(name+" over "+by, func(t *testing.T) {
				test(t, func(h http.Handler) stage { return open(t, serve, h) })
			})
		}
	}
}
