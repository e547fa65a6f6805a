package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
	"github.com/holdfast-go/holdfast/singleflight"
)

// limit is for how long a test waits for what must happen.
const limit = 30 * time.Second

func from[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(limit):
		t.Fatalf("%s: waited in vain", what)
		panic("not reached")
	}
}

// A front is a server with a handler that Coalesce is around.
type front struct {
	*httptest.Server
	t       *testing.T
	runs    atomic.Int64
	entered chan *http.Request // each run of the handler
	arrived chan struct{}      // each request that leads or waits, once it does
	how     chan middleware.Coalesced
}

// asking is a context that tells when somebody begins to wait for its end. The middleware does that once it has joined.
type asking struct {
	context.Context
	asked func()
}

func (a asking) Done() <-chan struct{} {
	a.asked()
	return a.Context.Done()
}

// coalesced starts a server. answer is called with the number of the run.
func coalesced(t *testing.T, key middleware.KeyFunc, opts middleware.CoalesceOptions, answer func(n int64, w http.ResponseWriter, r *http.Request)) *front {
	t.Helper()
	f := &front{t: t, entered: make(chan *http.Request, 1000), arrived: make(chan struct{}, 1000), how: make(chan middleware.Coalesced, 1000)}
	opts.Observe = func(_ *http.Request, how middleware.Coalesced) { f.how <- how }
	inner := middleware.Coalesce(nil, key, &opts)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := f.runs.Add(1)
		f.entered <- r
		answer(n, w, r)
	}))
	f.Server = serving(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request", r.Header.Get("X-Request")) // as a middleware around does
		var once sync.Once
		ctx := asking{r.Context(), func() { once.Do(func() { f.arrived <- struct{}{} }) }}
		inner.ServeHTTP(w, r.WithContext(ctx))
	}))
	return f
}

// serving starts a server that is closed when the test ends. It says nothing of panics.
func serving(t testing.TB, h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// A reply is what a client gets.
type reply struct {
	*http.Response
	body string
	err  error
}

// exchange sends a request; headers are names and values by turns.
func exchange(ctx context.Context, s *httptest.Server, method, path, body string, headers ...string) reply {
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, s.URL+path, from)
	if err != nil {
		return reply{err: err}
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header[headers[i]] = append(r.Header[headers[i]], headers[i+1])
	}
	if h := r.Header["Host"]; h != nil {
		r.Host = h[0]
	}
	resp, err := s.Client().Do(r)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp, string(b), err}
}

// get sends a request in the background.
func (f *front) get(ctx context.Context, headers ...string) <-chan reply {
	return f.send(ctx, "GET", "/a?b=c", headers...)
}

func (f *front) send(ctx context.Context, method, path string, headers ...string) <-chan reply {
	ch := make(chan reply, 1)
	go func() { ch <- exchange(ctx, f.Server, method, path, "", headers...) }()
	return ch
}

func TestCoalesceSharesOneRun(t *testing.T) {
	const n = 100
	release := make(chan struct{})
	f := coalesced(t, nil, middleware.CoalesceOptions{}, func(n int64, w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Add("X-List", "1")
		h.Add("X-List", "2")
		h.Set("Trailer", "X-Sum")
		h.Set("Keep-Alive", "timeout=5")
		<-release
		w.WriteHeader(http.StatusAccepted)
		fmt.Fprintf(w, "run %d", n)
		h.Set("X-Sum", "42")
		h.Set(http.TrailerPrefix+"X-Late", "43")
	})
	var replies []<-chan reply
	for i := range n {
		replies = append(replies, f.get(t.Context(), "X-Request", fmt.Sprint(i)))
	}
	for range n {
		from(t, f.arrived, "requests")
	}
	close(release)
	for i, ch := range replies {
		r := from(t, ch, "an answer")
		if r.err != nil {
			t.Fatal(r.err)
		}
		if r.StatusCode != http.StatusAccepted || r.body != "run 1" || strings.Join(r.Header["X-List"], ",") != "1,2" {
			t.Fatalf("status %d, header %v, body %q", r.StatusCode, r.Header, r.body)
		}
		if r.Trailer.Get("X-Sum") != "42" || r.Trailer.Get("X-Late") != "43" {
			t.Fatalf("trailer %v", r.Trailer)
		}
		if got := r.Header.Get("X-Request"); got != fmt.Sprint(i) {
			t.Fatalf("request %d got the header of request %s that a middleware around has set", i, got)
		}
	}
	if got := f.runs.Load(); got != 1 {
		t.Fatalf("%d runs", got)
	}
	if r := from(t, f.get(t.Context()), "an answer"); r.body != "run 2" {
		t.Fatalf("%q: the answer was kept after the run", r.body)
	}
}

func TestCoalesceDistinguishes(t *testing.T) {
	get := []string{"GET", "/a?b=c"}
	tests := []struct {
		name string
		opts middleware.CoalesceOptions
		key  middleware.KeyFunc
		a, b []string // method, path, headers
		same bool
	}{
		{name: "nothing", a: get, b: get, same: true},
		{name: "header that nobody names", a: get, b: append(get, "X-Other", "1"), same: true},
		{name: "method", a: get, b: []string{"HEAD", "/a?b=c"}},
		{name: "path", a: get, b: []string{"GET", "/b?b=c"}},
		{name: "query", a: get, b: []string{"GET", "/a?b=d"}},
		{name: "host", a: get, b: append(get, "Host", "other")},
		{name: "Authorization", a: append(get, "Authorization", "a"), b: append(get, "Authorization", "b")},
		{name: "Authorization or none", a: append(get, "Authorization", "a"), b: get},
		{name: "Cookie", a: append(get, "Cookie", "a=1"), b: append(get, "Cookie", "a=2")},
		{name: "Cookie for Authorization", a: append(get, "Cookie", "a=1"), b: append(get, "Authorization", "a=1")},
		{name: "Range", a: get, b: append(get, "Range", "bytes=0-1")},
		{name: "If-None-Match", a: get, b: append(get, "If-None-Match", `"x"`)},
		{name: "X-Forwarded-Host", a: get, b: append(get, "X-Forwarded-Host", "evil.example")},
		{name: "X-Forwarded-Proto", a: get, b: append(get, "X-Forwarded-Proto", "https")},
		{name: "forwarded or not", a: get, b: append(get, "X-Forwarded-Proto", "http"), same: true},
		{name: "If-Modified-Since", a: get, b: append(get, "If-Modified-Since", "x")},
		{
			name: "named header", opts: middleware.CoalesceOptions{Headers: []string{"x-api-key"}},
			a: append(get, "X-Api-Key", "a"), b: append(get, "X-Api-Key", "b"),
		},
		{name: "key", key: middleware.Header("X-Key"), a: append(get, "X-Key", "a"), b: append(get, "X-Key", "b")},
		{
			name: "target besides the key", key: middleware.Header("X-Key"),
			a: append(get, "X-Key", "a"), b: []string{"GET", "/b", "X-Key", "a"},
		},
		{
			name: "not the target if so asked", key: middleware.Header("X-Key"), opts: middleware.CoalesceOptions{AcrossTargets: true},
			a: append(get, "X-Key", "a"), b: []string{"GET", "/b", "X-Key", "a"}, same: true,
		},
		{
			name: "the host, if it is named", key: middleware.Header("X-Key"),
			opts: middleware.CoalesceOptions{AcrossTargets: true, Headers: []string{"host"}},
			a:    append(get, "X-Key", "a"), b: []string{"GET", "/b", "X-Key", "a", "Host", "other"},
		},
		{name: "no-cache", a: get, b: append(get, "Cache-Control", "max-age=0, no-cache")},
		{name: "Pragma", a: get, b: append(get, "Pragma", "no-cache")},
		{name: "Upgrade", a: get, b: append(get, "Upgrade", "x", "Connection", "upgrade")},
	}
	for _, x := range tests {
		t.Run(x.name, func(t *testing.T) {
			release := make(chan struct{})
			once := sync.OnceFunc(func() { close(release) })
			f := coalesced(t, x.key, x.opts, func(n int64, w http.ResponseWriter, _ *http.Request) {
				<-release
				fmt.Fprint(w, n)
			})
			t.Cleanup(once) // before the server is closed, which waits
			a := f.send(t.Context(), x.a[0], x.a[1], x.a[2:]...)
			from(t, f.entered, "the first run")
			from(t, f.arrived, "the first request")
			b := f.send(t.Context(), x.b[0], x.b[1], x.b[2:]...)
			if x.same {
				from(t, f.arrived, "the second request")
			} else {
				from(t, f.entered, "the second run, while the first one goes on")
			}
			once()
			ra, rb := from(t, a, "an answer"), from(t, b, "an answer")
			if ra.err != nil || rb.err != nil {
				t.Fatal(ra.err, rb.err)
			}
			if x.same != (ra.body == rb.body) || x.same != (f.runs.Load() == 1) {
				t.Errorf("%q and %q in %d runs", ra.body, rb.body, f.runs.Load())
			}
		})
	}
}

// What is outside may give several paths to one handler, and tell it in another way which it was.
func TestCoalescePathsThatWereChanged(t *testing.T) {
	entered, release := make(chan struct{}, 2), make(chan struct{})
	s := serving(t, tenants(func(h http.Handler) http.Handler {
		return middleware.Coalesce(nil, nil, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			entered <- struct{}{}
			<-release
			h.ServeHTTP(w, r)
		}))
	}))
	once := sync.OnceFunc(func() { close(release) })
	t.Cleanup(once) // before the server is closed
	replies := map[string]chan reply{"a": make(chan reply, 1), "b": make(chan reply, 1)}
	for tenant, ch := range replies {
		go func() { ch <- exchange(t.Context(), s, "GET", "/"+tenant+"/report", "") }()
		from(t, entered, "a run for each tenant")
	}
	once()
	for tenant, ch := range replies {
		from(t, ch, "an answer").is(t, http.StatusOK, "for "+tenant)
	}
}

func TestCoalesceLeavesOtherRequestsAlone(t *testing.T) {
	f := coalesced(t, func(r *http.Request) (string, error) {
		if r.URL.Path == "/skip" {
			return "", middleware.ErrSkip
		}
		return "", errors.New("secret reason")
	}, middleware.CoalesceOptions{}, func(_ int64, w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Write(b)
	})
	for _, x := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/", "posted", 200, "posted"},
		{"GET", "/", "a body", 200, "a body"},
		{"GET", "/skip", "", 200, ""},
		{"GET", "/", "", 400, `{"type":"` + middleware.TypeKey + `","title":"No usable key","status":400}`},
	} {
		r := exchange(t.Context(), f.Server, x.method, x.path, x.body)
		if r.err != nil || r.StatusCode != x.status || r.body != x.want {
			t.Errorf("%s %s %q: %v %v %q", x.method, x.path, x.body, r.err, r.Response, r.body)
		}
	}
	if len(f.arrived) != 0 {
		t.Error("one of them joined")
	}
}

// Answers that are for one request only: whoever has waited runs the handler itself, and the first one gets its answer whole.
func TestCoalesceDoesNotShare(t *testing.T) {
	large := strings.Repeat("x", 100)
	for name, answer := range map[string]func(w http.ResponseWriter){
		"Set-Cookie":       func(w http.ResponseWriter) { w.Header().Set("Set-Cookie", "user=1") },
		"no-store":         func(w http.ResponseWriter) { w.Header().Set("Cache-Control", "max-age=1, No-Store") },
		"private":          func(w http.ResponseWriter) { w.Header().Set("Cache-Control", `private="x"`) },
		"Vary *":           func(w http.ResponseWriter) { w.Header().Set("Vary", "Accept, *") },
		"too large":        func(w http.ResponseWriter) { io.WriteString(w, large) },
		"too large, later": func(w http.ResponseWriter) { io.WriteString(w, "x"); io.WriteString(w, large) },
		"flushed":          func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
		"flushed, later":   func(w http.ResponseWriter) { io.WriteString(w, "x"); http.NewResponseController(w).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			begin, finish := make(chan struct{}), make(chan struct{})
			f := coalesced(t, nil, middleware.CoalesceOptions{MaxAnswer: 99}, func(n int64, w http.ResponseWriter, r *http.Request) {
				<-begin
				answer(w)
				w.WriteHeader(http.StatusOK)
				if n == 1 {
					<-finish
				}
				fmt.Fprintf(w, "run %d", n)
			})
			a := f.get(t.Context())
			from(t, f.entered, "the first run")
			b := f.get(t.Context())
			from(t, f.arrived, "the first request")
			from(t, f.arrived, "the second request")
			close(begin)
			rb := from(t, b, "the second answer, while the first run goes on")
			close(finish)
			ra := from(t, a, "the first answer")
			if ra.err != nil || rb.err != nil {
				t.Fatal(ra.err, rb.err)
			}
			if !strings.HasSuffix(ra.body, "run 1") || !strings.HasSuffix(rb.body, "run 2") || len(ra.body) != len(rb.body) {
				t.Errorf("bodies %q and %q", ra.body, rb.body)
			}
			if got := []middleware.Coalesced{<-f.how, <-f.how}; got[0] != middleware.CoalescedFirst || got[1] != middleware.CoalescedAlone {
				t.Error(got)
			}
		})
	}
}

func TestCoalesceHijack(t *testing.T) {
	begin := make(chan struct{})
	f := coalesced(t, nil, middleware.CoalesceOptions{}, func(n int64, w http.ResponseWriter, r *http.Request) {
		<-begin
		if n > 1 {
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := w.Write(nil); !errors.Is(err, http.ErrHijacked) {
			t.Error(err)
		}
		rw.WriteString("HTTP/1.1 299 Mine\r\nContent-Length: 0\r\n\r\n")
		rw.Flush()
		conn.Close()
	})
	a := f.get(t.Context())
	from(t, f.entered, "the first run")
	b := f.get(t.Context())
	from(t, f.arrived, "the first request")
	from(t, f.arrived, "the second request")
	close(begin)
	if r := from(t, a, "the first answer"); r.err != nil || r.StatusCode != 299 {
		t.Error(r)
	}
	if r := from(t, b, "the second answer"); r.err != nil || r.StatusCode != http.StatusOK {
		t.Error(r)
	}
}

func TestCoalesceVary(t *testing.T) {
	release := make(chan struct{})
	f := coalesced(t, nil, middleware.CoalesceOptions{}, func(n int64, w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "X-Other, accept-language")
		r.Header.Del("Accept-Language") // what a handler does to its request is of no account
		<-release
		fmt.Fprint(w, n)
	})
	a := f.get(t.Context(), "Accept-Language", "de")
	from(t, f.entered, "the first run")
	same := f.get(t.Context(), "Accept-Language", "de")
	others := []<-chan reply{
		f.get(t.Context(), "Accept-Language", "en"), f.get(t.Context()), f.get(t.Context(), "Accept-Language", "de", "Accept-Language", "en"),
	}
	for range 5 {
		from(t, f.arrived, "requests")
	}
	close(release)
	if a, same := from(t, a, "an answer").body, from(t, same, "an answer").body; a != "1" || same != "1" {
		t.Errorf("the same language: %q and %q", a, same)
	}
	for _, ch := range others {
		if r := from(t, ch, "an answer"); r.body == "1" {
			t.Error("another language got the first one's answer")
		}
	}
}

func TestCoalesceFirstClientLeaves(t *testing.T) {
	release := make(chan struct{})
	f := coalesced(t, nil, middleware.CoalesceOptions{}, func(n int64, w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
			t.Error("the run was cancelled")
		}
		io.WriteString(w, "all of it")
	})
	ctx, leave := context.WithCancel(t.Context())
	a := f.get(ctx)
	r := from(t, f.entered, "the run")
	from(t, f.arrived, "the first request")
	b := f.get(t.Context())
	from(t, f.arrived, "the second request")
	first := r.Context().Value(http.LocalAddrContextKey)
	if first == nil {
		t.Error("the run does not have the values of the request's context")
	}
	leave()
	if r := from(t, a, "the end"); r.err == nil {
		t.Error("the first one got an answer")
	}
	close(release)
	if r := from(t, b, "the answer"); r.err != nil || r.body != "all of it" || f.runs.Load() != 1 {
		t.Errorf("%v %q, %d runs", r.err, r.body, f.runs.Load())
	}
}

func TestCoalesceAllClientsLeave(t *testing.T) {
	cause := make(chan error, 1)
	f := coalesced(t, nil, middleware.CoalesceOptions{}, func(n int64, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			<-r.Context().Done()
			cause <- context.Cause(r.Context())
		}
		fmt.Fprint(w, n)
	})
	ctx, leave := context.WithCancel(t.Context())
	f.get(ctx)
	f.get(ctx)
	from(t, f.arrived, "requests")
	from(t, f.arrived, "requests")
	leave()
	if err := from(t, cause, "the end of the run's context"); !errors.Is(err, singleflight.ErrAbandoned) {
		t.Error(err)
	}
	if r := from(t, f.get(t.Context()), "an answer"); r.body != "2" {
		t.Errorf("%q", r.body)
	}
}

// Once the answer is for the first one only, the run ends with its client, whoever else is still there.
func TestCoalesceStreamEndsWithItsClient(t *testing.T) {
	ended, finish := make(chan struct{}), make(chan struct{})
	begin := make(chan struct{})
	f := coalesced(t, nil, middleware.CoalesceOptions{}, func(n int64, w http.ResponseWriter, r *http.Request) {
		if n > 1 {
			<-finish
			return
		}
		<-begin
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(ended)
	})
	ctx, leave := context.WithCancel(t.Context())
	f.get(ctx)
	from(t, f.entered, "the first run")
	from(t, f.arrived, "the first request")
	b := f.get(t.Context())
	from(t, f.arrived, "the second request")
	close(begin)
	from(t, f.entered, "the second run")
	leave()
	from(t, ended, "the end of the first run")
	close(finish)
	from(t, b, "the second answer")
}

func TestCoalescePanic(t *testing.T) {
	for name, value := range map[string]any{"some value": "mine", "abort": http.ErrAbortHandler} {
		t.Run(name, func(t *testing.T) {
			release, got := make(chan struct{}), make(chan any, 1)
			f := coalesced(t, nil, middleware.CoalesceOptions{}, func(n int64, w http.ResponseWriter, r *http.Request) {
				if n == 1 {
					<-release
					io.WriteString(w, "half of it")
					panic(value)
				}
				fmt.Fprint(w, n)
			})
			inner := f.Config.Handler
			f.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() {
					if v := recover(); v != nil {
						got <- v
						panic(v)
					}
				}()
				inner.ServeHTTP(w, r)
			})
			a := f.get(t.Context())
			from(t, f.entered, "the run")
			b := f.get(t.Context())
			from(t, f.arrived, "requests")
			from(t, f.arrived, "requests")
			close(release)
			if r := from(t, a, "the end"); r.err == nil {
				t.Errorf("the first one got %q", r.body)
			}
			if v := from(t, got, "the panic"); v != value {
				t.Errorf("panic with %v", v)
			}
			if r := from(t, b, "the answer"); r.err != nil || r.body != "2" {
				t.Errorf("%v %q", r.err, r.body)
			}
		})
	}
}

// A first client that does not read must not keep the others from their answer.
func TestCoalesceSlowFirstClient(t *testing.T) {
	body := strings.Repeat("0123456789abcdef", 1<<20) // more than the kernel's buffers take
	release := make(chan struct{})
	f := coalesced(t, nil, middleware.CoalesceOptions{MaxAnswer: len(body)}, func(_ int64, w http.ResponseWriter, _ *http.Request) {
		<-release
		io.WriteString(w, body)
	})
	conn, err := net.Dial("tcp", f.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /a?b=c HTTP/1.1\r\nHost: %s\r\n\r\n", f.Listener.Addr())
	from(t, f.entered, "the run")
	b := f.get(t.Context())
	from(t, f.arrived, "requests")
	from(t, f.arrived, "requests")
	close(release)
	if r := from(t, b, "the answer"); r.err != nil || r.body != body || f.runs.Load() != 1 {
		t.Errorf("%v, %d bytes, %d runs", r.err, len(r.body), f.runs.Load())
	}
}

func TestCoalesceEarlyHints(t *testing.T) {
	f := coalesced(t, nil, middleware.CoalesceOptions{}, func(_ int64, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.WriteHeader(http.StatusNoContent)
		if _, err := w.Write([]byte("x")); !errors.Is(err, http.ErrBodyNotAllowed) {
			t.Error(err)
		}
	})
	conn, err := net.Dial("tcp", f.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	r := bufio.NewReader(conn)
	for _, want := range []struct {
		status int
		link   string
	}{{103, "</style.css>"}, {204, ""}} {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want.status || resp.Header.Get("Link") != want.link {
			t.Error(resp)
		}
	}
}

// Many users ask for the same at the same time, told apart by a token, a cookie or a header that the options name. Each must
// get what is its own, and some of what is shared by those of the same user has to be shared.
func TestCoalesceUserNeverGetsAnothersAnswer(t *testing.T) {
	var runs atomic.Int64
	h := middleware.Coalesce(nil, nil, &middleware.CoalesceOptions{Headers: []string{"X-User"}})(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			runs.Add(1)
			time.Sleep(time.Millisecond) // so that some meet
			fmt.Fprint(w, r.Header.Get("Authorization"), "/", r.Header.Get("Cookie"), "/", r.Header.Get("X-User"))
		}))
	s := serving(t, h)
	const users, rounds, times = 5, 40, 3
	var wg sync.WaitGroup
	for i := range users * 3 {
		for range times {
			wg.Go(func() {
				var who [3]string
				who[i%3] = fmt.Sprint("user", i/3)
				want := strings.Join(who[:], "/")
				for range rounds {
					var headers []string
					for j, name := range []string{"Authorization", "Cookie", "X-User"} {
						if who[j] != "" {
							headers = append(headers, name, who[j])
						}
					}
					if r := exchange(t.Context(), s, "GET", "/me", "", headers...); r.err != nil || r.body != want {
						t.Errorf("%q got %q, %v", want, r.body, r.err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	if n := runs.Load(); n >= users*3*rounds*times {
		t.Errorf("%d runs: nothing was shared, so nothing was tried", n)
	}
}

// A lock around each run, by the option or by Serialize.
func TestCoalesceWithALock(t *testing.T) {
	for _, inside := range []bool{false, true} {
		t.Run(fmt.Sprintf("Serialize inside %v", inside), func(t *testing.T) { coalesceWithALock(t, inside) })
	}
}

func coalesceWithALock(t *testing.T, inside bool) {
	arbiter := fallback.NewMemory()
	var running, most, fences atomic.Int64
	var servers []*httptest.Server
	var nodes []*coord.Coordinator
	key := middleware.Header("X-Key")
	for range 3 {
		c := start(t, arbiter, nil)
		nodes = append(nodes, c)
		coalesce := middleware.Coalesce(c, key, &middleware.CoalesceOptions{Lock: !inside})
		serialize := func(h http.Handler) http.Handler { return h }
		if inside {
			serialize = middleware.Serialize(c, key, &middleware.SerializeOptions{Methods: []string{"GET"}, Wait: limit})
		}
		servers = append(servers, serving(t, coalesce(serialize(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer running.Add(-1)
			if l, ok := middleware.Lock(r.Context()); ok && l.Key() == "k" {
				fences.Add(1)
			}
			w.Header().Set("Cache-Control", "no-store") // so that those who waited run as well
		})))))
	}
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			if r := exchange(t.Context(), servers[i%3], "GET", "/", "", "X-Key", "k"); r.err != nil || r.StatusCode != http.StatusOK {
				t.Error(r)
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 || fences.Load() != 30 {
		t.Errorf("%d at once, %d with the lock", most.Load(), fences.Load())
	}
	nodes[0].Close(t.Context())
	if r := exchange(t.Context(), servers[0], "GET", "/", "", "X-Key", "k"); r.err != nil || r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") != "1" {
		t.Error(r)
	}
}

func TestCoalesceWaitLimitedByContext(t *testing.T) {
	release := make(chan struct{})
	entered := make(chan struct{}, 1)
	h := middleware.Coalesce(nil, nil, nil)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-release
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	}()
	from(t, entered, "the run")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Error(w.Code)
	}
	func() {
		defer func() {
			if v := recover(); v != http.ErrAbortHandler {
				t.Errorf("panic with %v", v)
			}
		}()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	}()
	close(release)
	from(t, done, "the end")
}

func TestCoalesceRefusesBadOptions(t *testing.T) {
	for name, f := range map[string]func(){
		"across targets without a key": func() { middleware.Coalesce(nil, nil, &middleware.CoalesceOptions{AcrossTargets: true}) },
		"empty header":                 func() { middleware.Coalesce(nil, nil, &middleware.CoalesceOptions{Headers: []string{""}}) },
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
