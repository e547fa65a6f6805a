package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
)

// A front is a server with a handler that Coalesce is around.
type front struct {
	*httptest.Server
	t       *testing.T
	runs    atomic.Int64
	entered chan *http.Request // each run of the handler
	arrived chan struct{}      // each request that leads or waits, once it does
	how     chan middleware.Coalesced
}

// asking is a context that tells when a request begins to wait for its end. The middleware does
// that once it has joined.
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
	opts.Ignore = append(opts.Ignore, "X-Request")
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
		{name: "header that the middleware does not know", a: get, b: append(get, "X-Other", "1")},
		{name: "User-Agent", a: append(get, "User-Agent", "a"), b: append(get, "User-Agent", "b")},
		{name: "X-Api-Key", a: append(get, "X-Api-Key", "a"), b: append(get, "X-Api-Key", "b")},
		{name: "X-Auth-Token", a: append(get, "X-Auth-Token", "a"), b: append(get, "X-Auth-Token", "b")},
		{name: "X-Goog-Iap-Jwt-Assertion", a: append(get, "X-Goog-Iap-Jwt-Assertion", "a"), b: append(get, "X-Goog-Iap-Jwt-Assertion", "b")},
		{name: "Cf-Access-Jwt-Assertion", a: append(get, "Cf-Access-Jwt-Assertion", "a"), b: append(get, "Cf-Access-Jwt-Assertion", "b")},
		{name: "Accept", a: append(get, "Accept", "text/html"), b: append(get, "Accept", "text/csv")},
		{name: "Accept-Encoding", a: append(get, "Accept-Encoding", "gzip"), b: append(get, "Accept-Encoding", "identity")},
		{name: "Accept-Language", a: append(get, "Accept-Language", "de"), b: append(get, "Accept-Language", "en")},
		{name: "Origin", a: append(get, "Origin", "https://a"), b: append(get, "Origin", "https://b")},
		{name: "one header twice, or with a comma", a: append(get, "X-A", "1", "X-A", "2"), b: append(get, "X-A", "1, 2")},
		{name: "a value in another header", a: append(get, "X-A", "1"), b: append(get, "X-B", "1")},
		{
			name: "what identifies the request and its way", same: true,
			a: append(get, "Traceparent", "a", "X-Request-Id", "a", "X-Forwarded-For", "192.0.2.1", "X-Amzn-Trace-Id", "a"),
			b: append(get, "Traceparent", "b", "X-Request-Id", "b", "Via", "1.1 b", "X-Real-Ip", "192.0.2.2", middleware.HopHeader, "1"),
		},
		{
			name: "ignored header", opts: middleware.CoalesceOptions{Ignore: []string{"user-agent"}}, same: true,
			a: append(get, "User-Agent", "a"), b: append(get, "User-Agent", "b"),
		},
		{
			name: "Upgrade: h2c, which net/http never accepts", a: get, same: true,
			b: append(get, "Upgrade", "h2c", "Connection", "Upgrade, HTTP2-Settings", "HTTP2-Settings", "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA"),
		},
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
		{name: "key", key: middleware.Header("X-Key"), a: append(get, "X-Key", "a"), b: append(get, "X-Key", "b")},
		{
			name: "target besides the key", key: middleware.Header("X-Key"),
			a: append(get, "X-Key", "a"), b: []string{"GET", "/b", "X-Key", "a"},
		},
		{
			name: "not the target if so asked", key: middleware.Header("X-Key"), opts: middleware.CoalesceOptions{AcrossTargets: true},
			a: append(get, "X-Key", "a"), b: []string{"GET", "/b", "X-Key", "a"}, same: true,
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

// A handler outside may give several paths to one handler, and pass on the original in another way.
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
			w.Header().Set("Cache-Control", "no-store") // so that requests that waited run as well
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

func TestCoalesceRefusesBadOptions(t *testing.T) {
	for name, f := range map[string]func(){
		"across targets without a key": func() { middleware.Coalesce(nil, nil, &middleware.CoalesceOptions{AcrossTargets: true}) },
		"empty header":                 func() { middleware.Coalesce(nil, nil, &middleware.CoalesceOptions{Ignore: []string{""}}) },
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
