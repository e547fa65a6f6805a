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
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/redistest"
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
		c, err := coord.New(arbiter, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(context.Background()); err != nil && !s.losing {
				t.Errorf("Close: %v", err)
			}
		})
		inner := middleware.Idempotent(c, store, opts)(h)
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

func TestIdempotentKeepsCookiesIfAsked(t *testing.T) {
	s := open(t, 1, nil, &middleware.IdempotentOptions{KeepCookies: true}, func(_ int64, w http.ResponseWriter, _ *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "1"})
	})
	s.post(0, "")
	if r := s.post(0, ""); !r.replayed() || r.Header.Get("Set-Cookie") != "a=1" {
		t.Error(r.Header)
	}
}

// A hundred duplicates at once, sent to four servers: one run, and one answer for all.
func TestIdempotentConcurrentDuplicates(t *testing.T) {
	redis := redistest.Start(t)
	for name, store := range map[string]middleware.Store{
		"memory": middleware.NewMemoryStore(nil), "redis": middleware.NewRedisStore(redis.Client(t), nil),
	} {
		t.Run(name, func(t *testing.T) {
			const n, servers = 100, 4
			release := make(chan struct{})
			s := open(t, servers, store, &middleware.IdempotentOptions{Wait: limit}, func(n int64, w http.ResponseWriter, r *http.Request) {
				<-release
				fmt.Fprintf(w, "run %d", n)
			})
			replies := make(chan reply, n)
			for i := range n {
				go func() { replies <- s.post(i%servers, "x") }()
			}
			from(t, s.entered, "the run")
			await(t, "all but the first waiting", func() bool {
				sum := 0
				for _, c := range s.nodes {
					sum += c.Stats().Waiting
				}
				return sum == n-1
			})
			close(release)
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

func TestIdempotentAnotherRequestWithTheKey(t *testing.T) {
	auth := func(r *http.Request) (string, error) { return "tenant", nil }
	for _, scope := range []middleware.KeyFunc{nil, auth} {
		s := open(t, 1, nil, &middleware.IdempotentOptions{Scope: scope}, func(n int64, w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, n)
		})
		key := []string{"Idempotency-Key", "k", "Content-Type", "text/plain", "Cookie", "a=1"}
		ctx, server := t.Context(), s.servers[0]
		exchange(ctx, server, "POST", "/a?b", "body", key...).is(t, http.StatusOK, "1")
		refused := map[string]reply{
			"body":             exchange(ctx, server, "POST", "/a?b", "bodY", key...),
			"no body":          exchange(ctx, server, "POST", "/a?b", "", key...),
			"query":            exchange(ctx, server, "POST", "/a?c", "body", key...),
			"content type":     exchange(ctx, server, "POST", "/a?b", "body", "Idempotency-Key", "k", "Content-Type", "text/html", "Cookie", "a=1"),
			"content encoding": exchange(ctx, server, "POST", "/a?b", "body", append(key, "Content-Encoding", "x")...),
		}
		other := map[string]reply{}
		more := refused // with a scope: the key is one for all paths, methods and tokens; without: they have keys of their own
		if scope == nil {
			more = other
			refused["cookie"] = exchange(ctx, server, "POST", "/a?b", "body", "Idempotency-Key", "k", "Content-Type", "text/plain", "Cookie", "a=2")
			more["token"] = exchange(ctx, server, "POST", "/a?b", "body", append(key, "Authorization", "x")...)
			refused["host"] = exchange(ctx, server, "POST", "/a?b", "body", append(key, "Host", "x")...)
		}
		more["path"] = exchange(ctx, server, "POST", "/b?b", "body", key...)
		more["method"] = exchange(ctx, server, "PATCH", "/a?b", "body", key...)
		for name, r := range refused {
			if r.err != nil || r.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(r.body, middleware.TypeReused) {
				t.Errorf("another %s, scope %t: %v %d %q", name, scope != nil, r.err, r.StatusCode, r.body)
			}
		}
		for name, r := range other {
			if r.err != nil || r.StatusCode != http.StatusOK || r.body == "1" {
				t.Errorf("another %s, scope %t: %v %d %q", name, scope != nil, r.err, r.StatusCode, r.body)
			}
		}
		exchange(ctx, server, "POST", "/a?b", "body", key...).is(t, http.StatusOK, "1")
	}
}

// The same key, path and body from many users at once: each gets what is its own, first and repeated.
func TestIdempotentUserNeverGetsAnothersAnswer(t *testing.T) {
	byHeader := func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil }
	for name, scope := range map[string]middleware.KeyFunc{"Authorization": nil, "X-User": byHeader} {
		s := open(t, 2, nil, &middleware.IdempotentOptions{Scope: scope}, func(_ int64, w http.ResponseWriter, r *http.Request) {
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

func TestIdempotentWaitsOnlySoLong(t *testing.T) {
	release := make(chan struct{})
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
	close(release)
	r := from(t, first, "the answer")
	r.is(t, http.StatusOK, "1")
	s.post(1, "x").is(t, http.StatusOK, "1")
}

func TestIdempotentWaitLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, fallback.NewMemory(), nil)
		release := make(chan struct{})
		h := middleware.Idempotent(c, middleware.NewMemoryStore(nil), &middleware.IdempotentOptions{Wait: 3 * time.Second})(
			http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
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
		close(release)
		if w := <-first; w.Code != http.StatusOK {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if w := post(); w.Header().Get(middleware.ReplayedHeader) == "" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

func TestIdempotentAnswersThatAreNotFinal(t *testing.T) {
	for status, final := range map[int]bool{200: true, 400: true, 404: true, 409: true, 408: false, 423: false, 425: false, 429: false, 500: true, 502: false, 503: false, 504: false} {
		s := open(t, 2, nil, nil, func(n int64, w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, n)
		})
		s.post(0, "x").is(t, status, "1")
		s.post(0, "another").is(t, http.StatusUnprocessableEntity, "") // the key belongs to the request all the same
		if r := s.post(1, "x"); final {
			r.is(t, status, "1")
		} else {
			r.is(t, status, "2")
		}
	}
	s := open(t, 1, nil, &middleware.IdempotentOptions{Final: func(status int) bool { return status == 500 }},
		func(n int64, w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, n)
		})
	s.post(0, "x").is(t, http.StatusInternalServerError, "1")
	s.post(0, "x").is(t, http.StatusInternalServerError, "1")
}

func TestIdempotentPanic(t *testing.T) {
	for name, value := range map[string]any{"some value": "mine", "abort": http.ErrAbortHandler} {
		for _, final := range []bool{false, true} {
			s := open(t, 1, nil, &middleware.IdempotentOptions{Final: func(status int) bool { return final || status < 500 }},
				func(n int64, w http.ResponseWriter, r *http.Request) {
					if n == 1 {
						io.WriteString(w, "half of it")
						panic(value)
					}
					fmt.Fprint(w, n)
				})
			if r := s.post(0, "x"); r.err == nil {
				t.Errorf("%s: got %q", name, r.body)
			}
			if final {
				s.post(0, "x").is(t, http.StatusConflict, middleware.TypeOutcome)
			} else {
				s.post(0, "x").is(t, http.StatusOK, "2")
			}
			idle(t, s.nodes[0])
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
		opts   *middleware.IdempotentOptions
		key    string
	}{
		{"POST", nil, ""},
		{"PUT", nil, "k"},
		{"GET", nil, "k"},
		{"POST", &middleware.IdempotentOptions{Scope: skip}, "k"},
		{"POST", &middleware.IdempotentOptions{Methods: []string{"PUT"}}, "k"},
	} {
		s := open(t, 1, nil, x.opts, func(n int64, w http.ResponseWriter, r *http.Request) {
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
	s := open(t, 1, nil, &middleware.IdempotentOptions{Scope: func(*http.Request) (string, error) { return "", errors.New("secret") }},
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

func TestIdempotentAnswerTooLarge(t *testing.T) {
	s := open(t, 1, nil, &middleware.IdempotentOptions{MaxAnswer: 10}, func(_ int64, w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "1234567890")
		io.Copy(w, r.Body)
	})
	s.post(0, "1").is(t, http.StatusCreated, "12345678901")
	s.post(0, "1").is(t, http.StatusConflict, middleware.TypeNotKept)
	exchange(t.Context(), s.servers[0], "POST", "/", "", "Idempotency-Key", "fits").is(t, http.StatusCreated, "1234567890")
	exchange(t.Context(), s.servers[0], "POST", "/", "", "Idempotency-Key", "fits").is(t, http.StatusCreated, "1234567890")
	if s.runs.Load() != 2 {
		t.Errorf("%d runs", s.runs.Load())
	}
}

func TestIdempotentFlush(t *testing.T) {
	finish := make(chan struct{})
	s := open(t, 1, nil, nil, func(_ int64, w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "one, ")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-finish
		io.WriteString(w, "two")
		if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Error(err)
		}
	})
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.servers[0].URL+"/pay?a=b", http.NoBody)
	r.Host = "shop"
	r.Header.Set("Idempotency-Key", "k")
	resp, err := s.servers[0].Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, b); err != nil || string(b) != "one, " {
		t.Errorf("%q, %v, while the handler goes on", b, err)
	}
	close(finish)
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "two" {
		t.Errorf("%q, %v", b, err)
	}
	s.post(0, "").is(t, http.StatusOK, "one, two")
}

// The client goes away while the handler runs: the handler goes on, and the client finds its answer.
func TestIdempotentClientLeaves(t *testing.T) {
	for _, follow := range []bool{false, true} {
		noticed, release := make(chan struct{}, 1), make(chan struct{})
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
		close(release)
		r := from(t, again, "the answer")
		r.is(t, http.StatusOK, "1")
		if !r.replayed() || s.runs.Load() != 1 {
			t.Errorf("%v, %d runs", r.Header, s.runs.Load())
		}
	}
}

func TestIdempotentWaitingClientLeaves(t *testing.T) {
	release := make(chan struct{})
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
	close(release)
	from(t, first, "the answer").is(t, http.StatusOK, "1")
}

func TestIdempotentHandlerHasTheLock(t *testing.T) {
	var fence atomic.Uint64
	s := open(t, 1, nil, nil, func(_ int64, w http.ResponseWriter, r *http.Request) {
		l, ok := middleware.Lock(r.Context())
		if !ok || l.Fence() <= fence.Load() {
			t.Errorf("%t, fence %d after %d", ok, l.Fence(), fence.Load())
		}
		fence.Store(l.Fence())
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
		"no coordinator": func() { middleware.Idempotent(nil, store, nil) },
		"no store":       func() { middleware.Idempotent(c, nil, nil) },
		"TTL":            func() { middleware.Idempotent(c, store, &middleware.IdempotentOptions{TTL: -1}) },
		"method":         func() { middleware.Idempotent(c, store, &middleware.IdempotentOptions{Methods: []string{"post"}}) },
		"header":         func() { middleware.Idempotent(c, store, &middleware.IdempotentOptions{Header: "a b"}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error(name, "was accepted")
				}
			}()
			f()
		}()
	}
}
