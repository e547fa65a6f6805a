package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/middleware"
)

// A shop is some servers, each with a coordinator, over one arbiter and one store.
type shop struct {
	t       *testing.T
	nodes   []*coord.Coordinator
	servers []*httptest.Server
	runs    atomic.Int64
	entered chan *http.Request // each run of the handler
	losing  bool               // the test takes locks away, so that Close has something to complain of
}

func open(t *testing.T, n int, store middleware.Store, opts *middleware.IdempotentOptions,
	answer func(n int64, w http.ResponseWriter, r *http.Request)) *shop {
	t.Helper()
	return openTo(t, middleware.Unscoped, n, store, opts, answer)
}

// openTo is open with a scope.
func openTo(t *testing.T, scope middleware.KeyFunc, n int, store middleware.Store, opts *middleware.IdempotentOptions,
	answer func(n int64, w http.ResponseWriter, r *http.Request)) *shop {
	t.Helper()
	s := &shop{t: t, entered: make(chan *http.Request, 1000)}
	if store == nil {
		store = middleware.NewMemoryStore(nil)
	}
	arbiter := fallback.NewMemory()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := s.runs.Add(1)
		s.entered <- r
		answer(n, w, r)
	})
	for range n {
		c, err := coord.New(context.Background(), arbiter, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(context.Background()); err != nil && !s.losing {
				t.Errorf("Close: %v", err)
			}
		})
		inner := middleware.Idempotent(c, store, scope, opts)(h)
		s.nodes = append(s.nodes, c)
		s.servers = append(s.servers, serving(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Request", r.Header.Get("X-Request")) // as a middleware around does
			inner.ServeHTTP(w, r)
		})))
	}
	return s
}

// post sends a request with the key "k" to a server.
func (s *shop) post(i int, body string, headers ...string) reply {
	return exchange(s.t.Context(), s.servers[i], http.MethodPost, "/pay?a=b", body, append(headers, "Idempotency-Key", `"k"`, "Host", "shop")...)
}

func (r reply) replayed() bool { return r.Header.Get(middleware.ReplayedHeader) == "true" }

// is checks a reply's status and that its body contains a text.
func (r reply) is(t *testing.T, status int, text string) {
	t.Helper()
	if r.err != nil {
		t.Fatal(r.err)
	}
	if r.StatusCode != status || !strings.Contains(r.body, text) {
		t.Fatalf("%d %v %q, want %d and %q", r.StatusCode, r.Header, r.body, status, text)
	}
}

func TestIdempotentReplays(t *testing.T) {
	s := open(t, 2, nil, nil, func(n int64, w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil || r.ContentLength != int64(len(b)) {
			t.Errorf("%v, length %d of %d", err, r.ContentLength, len(b))
		}
		h := w.Header()
		h.Set("Location", "/payments/1")
		h.Add("X-List", "1")
		h.Add("X-List", "2")
		h.Set("Set-Cookie", "secret=1")
		h.Set("Date", "Thu, 01 Jan 1970 00:00:00 GMT")
		h.Set("Connection", "X-Hop")
		h.Set("X-Hop", "1")
		h.Set("Trailer", "X-Sum")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "run %d: %s", n, b)
		h.Set("X-Sum", "42")
	})
	for i := range 4 {
		r := s.post(i%2, "1 EUR", "X-Request", fmt.Sprint(i), "Content-Type", "text/plain")
		r.is(t, http.StatusCreated, "run 1: 1 EUR")
		h := r.Header
		if h.Get("Location") != "/payments/1" || len(h["X-List"]) != 2 || r.Trailer.Get("X-Sum") != "42" {
			t.Errorf("answer %d: %v, trailer %v", i, h, r.Trailer)
		}
		if h.Get("X-Request") != fmt.Sprint(i) {
			t.Errorf("answer %d has the header of request %s, that a middleware around has set", i, h.Get("X-Request"))
		}
		first := i == 0
		if r.replayed() == first || (h.Get("Set-Cookie") != "") != first || (h.Get("X-Hop") != "") != first ||
			strings.Contains(h.Get("Date"), "1970") != first {
			t.Errorf("answer %d: %v", i, h)
		}
	}
	if s.runs.Load() != 1 {
		t.Errorf("%d runs", s.runs.Load())
	}
	for _, c := range s.nodes {
		idle(t, c)
	}
}

func TestIdempotentAnotherRequestWithTheKey(t *testing.T) {
	s := open(t, 1, nil, nil, func(n int64, w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, n) })
	key := []string{"Idempotency-Key", "k", "Content-Type", "text/plain", "Cookie", "a=1"}
	ctx, server := t.Context(), s.servers[0]
	exchange(ctx, server, "POST", "/a?b", "body", key...).is(t, http.StatusOK, "1")
	for name, r := range map[string]reply{
		"body":             exchange(ctx, server, "POST", "/a?b", "bodY", key...),
		"no body":          exchange(ctx, server, "POST", "/a?b", "", key...),
		"query":            exchange(ctx, server, "POST", "/a?c", "body", key...),
		"content type":     exchange(ctx, server, "POST", "/a?b", "body", "Idempotency-Key", "k", "Content-Type", "text/html", "Cookie", "a=1"),
		"content encoding": exchange(ctx, server, "POST", "/a?b", "body", append(key, "Content-Encoding", "x")...),
		"path":             exchange(ctx, server, "POST", "/b?b", "body", key...),
		"method":           exchange(ctx, server, "PATCH", "/a?b", "body", key...),
	} {
		if r.err != nil || r.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(r.body, middleware.TypeReused) {
			t.Errorf("another %s: %v %d %q", name, r.err, r.StatusCode, r.body)
		}
	}
	exchange(ctx, server, "POST", "/a?b", "body", key...).is(t, http.StatusOK, "1")
}

// A client repeats its request at another replica's address, with a renewed session and a renewed
// token, and says that it was forwarded: it is the same request, and is executed once. Another
// user's with the same key is another request.
func TestIdempotent_SameRequestWithinTheScope(t *testing.T) {
	user := func(r *http.Request) (string, error) { // as authentication does
		name, _, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), ".")
		return name, nil
	}
	s := openTo(t, user, 2, nil, nil, func(n int64, w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, n) })
	post := func(i int, token string, headers ...string) reply {
		return exchange(t.Context(), s.servers[i], "POST", "/pay", "1 EUR",
			append(headers, "Idempotency-Key", "k", "Authorization", "Bearer "+token)...)
	}
	post(0, "eve.1", "Cookie", "session=1").is(t, http.StatusOK, "1")
	for name, again := range map[string]reply{
		"another address":  post(1, "eve.1", "Cookie", "session=1"),
		"a renewed cookie": post(0, "eve.1", "Cookie", "session=2"),
		"a renewed token":  post(0, "eve.2"),
		"all of it":        post(1, "eve.3", "Host", "10.0.0.7:8080", "Cookie", "session=4", middleware.HopHeader, "1"),
	} {
		if again.err != nil || again.StatusCode != http.StatusOK || again.body != "1" || !again.replayed() {
			t.Errorf("%s: %v %d %q", name, again.err, again.StatusCode, again.body)
		}
	}
	post(0, "adam.1").is(t, http.StatusOK, "2")
	exchange(t.Context(), s.servers[0], "POST", "/pay", "1 EUR", "Idempotency-Key", "k").is(t, http.StatusBadRequest, middleware.TypeKey)
	exchange(t.Context(), s.servers[0], "POST", "/pay", "1 EUR", "Idempotency-Key", "k").is(t, http.StatusBadRequest, "the scope of the idempotency key is empty")
	if s.runs.Load() != 2 {
		t.Errorf("%d runs", s.runs.Load())
	}
}

// The same key, path and body from many users at once: each gets its own answer, first and
// repeated.
func TestIdempotentUserNeverGetsAnothersAnswer(t *testing.T) {
	t.Parallel()
	takes.Seconds(t)
	byHeader := func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }
	for name, scope := range map[string]middleware.KeyFunc{"Authorization": middleware.Header("Authorization"), "X-User": byHeader} {
		s := openTo(t, scope, 2, nil, nil, func(_ int64, w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, r.Header.Get(name))
		})
		const users = 30
		var wg sync.WaitGroup
		for i := range users * 4 {
			wg.Go(func() {
				user := fmt.Sprintf("user %d.", i%users)
				if r := s.post(i%2, "x", name, user); r.err != nil || r.body != user {
					t.Errorf("%q got %q, %v", user, r.body, r.err)
				}
			})
		}
		wg.Wait()
		if s.runs.Load() != users {
			t.Errorf("%d runs for %d users", s.runs.Load(), users)
		}
	}
}

func TestIdempotentRefusesKeys(t *testing.T) {
	s := open(t, 1, nil, &middleware.IdempotentOptions{Required: true}, func(_ int64, w http.ResponseWriter, _ *http.Request) {})
	for name, headers := range map[string][]string{
		"none":    nil,
		"empty":   {"Idempotency-Key", ""},
		"huge":    {"Idempotency-Key", strings.Repeat("k", 100_000)},
		"two":     {"Idempotency-Key", "a", "Idempotency-Key", "a"},
		"list":    {"Idempotency-Key", "a, a"},
		"quoted":  {"Idempotency-Key", `"a`},
		"unicode": {"Idempotency-Key", "ü"},
	} {
		r := exchange(t.Context(), s.servers[0], "POST", "/", "x", headers...)
		if r.err != nil || r.StatusCode != http.StatusBadRequest || !strings.Contains(r.body, middleware.TypeIdempotencyKey) {
			t.Errorf("%s: %v %v %q", name, r.err, r.Response, r.body)
		}
	}
	if s.runs.Load() != 0 {
		t.Error("the handler ran")
	}
	exchange(t.Context(), s.servers[0], "GET", "/", "").is(t, http.StatusOK, "") // another method needs none
}

func TestIdempotentPasses(t *testing.T) {
	skip := func(*http.Request) (string, error) { return "", middleware.ErrSkip }
	for _, x := range []struct {
		method string
		scope  middleware.KeyFunc
		opts   *middleware.IdempotentOptions
		key    string
	}{
		{"POST", middleware.Unscoped, nil, ""},
		{"PUT", middleware.Unscoped, nil, "k"},
		{"GET", middleware.Unscoped, nil, "k"},
		{"POST", skip, nil, "k"},
		{"POST", middleware.Unscoped, &middleware.IdempotentOptions{Methods: []string{"PUT"}}, "k"},
	} {
		s := openTo(t, x.scope, 1, nil, x.opts, func(n int64, w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%d %s", n, b)
		})
		for i := range 2 {
			var headers []string
			if x.key != "" {
				headers = []string{"Idempotency-Key", x.key}
			}
			exchange(t.Context(), s.servers[0], x.method, "/", "body", headers...).is(t, http.StatusOK, fmt.Sprint(i+1, " body"))
		}
	}
	s := openTo(t, func(*http.Request) (string, error) { return "", errors.New("secret") }, 1, nil, nil,
		func(int64, http.ResponseWriter, *http.Request) {})
	if r := s.post(0, ""); r.StatusCode != http.StatusBadRequest || strings.Contains(r.body, "secret") || s.runs.Load() != 0 {
		t.Errorf("%d %q", r.StatusCode, r.body)
	}
}

func TestIdempotentRequestTooLarge(t *testing.T) {
	s := open(t, 1, nil, &middleware.IdempotentOptions{MaxRequest: 10}, func(_ int64, w http.ResponseWriter, r *http.Request) {
		io.Copy(w, r.Body)
	})
	s.post(0, strings.Repeat("x", 10)).is(t, http.StatusOK, "xxxxxxxxxx")
	for name, body := range map[string]io.Reader{
		"with its length": strings.NewReader(strings.Repeat("x", 11)), "chunked": io.MultiReader(strings.NewReader(strings.Repeat("x", 11))),
	} {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.servers[0].URL, body)
		r.Header.Set("Idempotency-Key", "large")
		resp, err := s.servers[0].Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
	}
	if s.runs.Load() != 1 {
		t.Error("the handler ran")
	}
}

func TestIdempotentHandlerHasTheLock(t *testing.T) {
	var fence atomic.Uint64
	s := open(t, 1, nil, nil, func(_ int64, w http.ResponseWriter, r *http.Request) {
		l, ok := middleware.Lock(r.Context())
		if !ok || uint64(l.Fence()) <= fence.Load() {
			t.Errorf("%t, fence %d after %d", ok, l.Fence(), fence.Load())
		}
		fence.Store(uint64(l.Fence()))
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	for range 3 {
		s.post(0, "x")
	}
	if s.runs.Load() != 3 {
		t.Errorf("%d runs", s.runs.Load())
	}
}

func TestIdempotentAfterClose(t *testing.T) {
	s := open(t, 1, nil, nil, func(_ int64, w http.ResponseWriter, r *http.Request) { io.WriteString(w, "done") })
	s.post(0, "x")
	if err := s.nodes[0].Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.post(0, "x").is(t, http.StatusOK, "done") // a replay needs no lock
	r := exchange(t.Context(), s.servers[0], "POST", "/", "", "Idempotency-Key", "other")
	r.is(t, http.StatusServiceUnavailable, middleware.TypeUnavailable)
	if r.Header.Get("Retry-After") == "" {
		t.Error(r.Header)
	}
}

func TestIdempotentRefusesBadOptions(t *testing.T) {
	c, store := start(t, fallback.NewMemory(), nil), middleware.NewMemoryStore(nil)
	for name, f := range map[string]func(){
		"no coordinator": func() { middleware.Idempotent(nil, store, middleware.Unscoped, nil) },
		"no store":       func() { middleware.Idempotent(c, nil, middleware.Unscoped, nil) },
		"no scope":       func() { middleware.Idempotent(c, store, nil, nil) },
		"TTL":            func() { middleware.Idempotent(c, store, middleware.Unscoped, &middleware.IdempotentOptions{TTL: -1}) },
		"TTL is 24ns": func() {
			middleware.Idempotent(c, store, middleware.Unscoped, &middleware.IdempotentOptions{TTL: 24})
		},
		"Wait is 10ns": func() {
			middleware.Idempotent(c, store, middleware.Unscoped, &middleware.IdempotentOptions{Wait: 10})
		},
		"StoreTimeout is 5ns": func() {
			middleware.Idempotent(c, store, middleware.Unscoped, &middleware.IdempotentOptions{StoreTimeout: 5})
		},
		"method": func() {
			middleware.Idempotent(c, store, middleware.Unscoped, &middleware.IdempotentOptions{Methods: []string{"post"}})
		},
		"header": func() {
			middleware.Idempotent(c, store, middleware.Unscoped, &middleware.IdempotentOptions{Header: "a b"})
		},
	} {
		func() {
			defer func() {
				if r := recover(); r == nil {
					t.Error(name, "was accepted")
				} else if strings.Contains(name, " is ") && !strings.Contains(fmt.Sprint(r), name) {
					t.Error(name, "panics with", r)
				}
			}()
			f()
		}()
	}
}
