package middleware_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/middleware"
)

func TestRequestsAreServedByTheOwner(t *testing.T) {
	t.Parallel()
	takes.Seconds(t)
	var mu sync.Mutex
	var in = map[string]bool{}
	nodes := cluster(t, 3, func(x *node) http.Handler {
		locked := middleware.Serialize(x.c, byOrder, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			l, _ := middleware.Lock(r.Context())
			if n, _ := x.c.Owner(l.Key()); !n.Self {
				t.Errorf("%s is served at %s, its owner is %s", l.Key(), x.URL, n.Service)
			}
			mu.Lock()
			if in[l.Key()] {
				t.Error("two at a time (I1)")
			}
			in[l.Key()] = true
			mu.Unlock()
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %s %v", r.Method, l.Key(), body, err)
			mu.Lock()
			in[l.Key()] = false
			mu.Unlock()
		}))
		return x.routed(locked.ServeHTTP)
	})
	var before []uint64
	for _, x := range nodes {
		s := x.c.Stats()
		before = append(before, s.Granted[coord.PathForwarded]+s.Granted[coord.PathArbiter])
	}
	var work sync.WaitGroup
	for i, x := range nodes {
		for w := range 4 {
			work.Go(func() {
				for j := range 20 {
					order := fmt.Sprint((i + w + j) % 13)
					r := request(t, x.Server, order)
					r.Method, r.Body = http.MethodPut, io.NopCloser(strings.NewReader("body"))
					if res := do(t, x.Server, r); res.StatusCode != http.StatusOK || res.body != "PUT order/"+order+" body <nil>" {
						t.Errorf("%d %s", res.StatusCode, res.body)
					}
				}
			})
		}
	}
	work.Wait()
	for i, x := range nodes {
		now := x.c.Stats().Granted
		if others := now[coord.PathForwarded] + now[coord.PathArbiter]; others > before[i] {
			t.Errorf("locks by path: %v", now)
		}
	}
}

func TestTheOwnerGetsTheRequestAsItCame(t *testing.T) {
	t.Parallel()
	got := make(chan *http.Request, 1)
	nodes := cluster(t, 2, func(x *node) http.Handler {
		h := x.routed(func(w http.ResponseWriter, r *http.Request) { got <- r.Clone(context.Background()) })
		return http.StripPrefix("/api", h)
	})
	x, other := nodes[0], nodes[1]
	order := orderOf(t, x, other)
	r := request(t, x.Server, order)
	r.URL.Opaque, r.URL.RawQuery = "/api/a%2Fb//c?order="+order+"&x=1&&y=%41", ""
	r.Host = "shop.example"
	sent := http.Header{
		"X-Forwarded-For": {"1.2.3.4", "5.6.7.8"}, "X-Forwarded-Proto": {"https"}, "X-Forwarded-Host": {"h"}, "Forwarded": {"for=1.2.3.4"},
		"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, "Baggage": {"a=b"}, "X-Two": {"1", "2"},
	}
	for name, values := range sent {
		r.Header[name] = values
	}
	if res := do(t, x.Server, r); res.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", res.StatusCode, res.body)
	}
	seen := <-got
	sent["X-Forwarded-For"] = []string{"1.2.3.4, 5.6.7.8, 127.0.0.1"}
	for name, want := range sent {
		if !slices.Equal(seen.Header[name], want) {
			t.Errorf("%s: %q, want %q", name, seen.Header[name], want)
		}
	}
	if seen.Host != "shop.example" || seen.RequestURI != r.URL.Opaque || seen.URL.RawPath != "/a%2Fb//c" || !slices.Equal(seen.Header[middleware.HopHeader], []string{"1"}) {
		t.Errorf("%s %s %s %v", seen.Host, seen.RequestURI, seen.URL.RawPath, seen.Header)
	}
	// Without a proxy in front, and with none of this.
	if res := do(t, x.Server, requestPath(t, x, "/api/?order="+order)); res.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", res.StatusCode, res.body)
	}
	seen = <-got
	if seen.Header.Get("X-Forwarded-For") != "127.0.0.1" || seen.Header.Get("X-Forwarded-Proto") != "http" ||
		seen.Header["X-Forwarded-Host"] != nil || seen.Host != x.Listener.Addr().String() {
		t.Errorf("%s %v", seen.Host, seen.Header)
	}
}

func requestPath(t testing.TB, x *node, path string) *http.Request {
	r := request(t, x.Server, "")
	r.URL.Path, r.URL.RawQuery, _ = strings.Cut(path, "?")
	return r
}

// name is a handler that says where it runs.
func (x *node) name(w http.ResponseWriter, r *http.Request) { io.WriteString(w, x.URL) }

func TestWhatIsServedWhereItArrives(t *testing.T) {
	t.Parallel()
	var opts middleware.RouteOptions
	nodes := cluster(t, 2, func(x *node) http.Handler {
		o := opts
		o.Transport = x.tr
		o.Methods = []string{"POST"}
		h := middleware.Route(x.c, byOrder, &o)(http.HandlerFunc(x.name))
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.ParseForm()
			h.ServeHTTP(w, r)
		})
	})
	x, other := nodes[0], nodes[1]
	order := orderOf(t, x, other)
	for name, c := range map[string]struct {
		change func(*http.Request)
		where  *node
	}{
		"as it is":           {func(*http.Request) {}, other},
		"keep-alive":         {func(r *http.Request) { r.Header.Set("Connection", "Keep-Alive") }, other},
		"close":              {func(r *http.Request) { r.Close = true }, other},
		"made up, empty":     {func(r *http.Request) { r.Header.Set(middleware.HopHeader, "") }, other},
		"made up, 1":         {func(r *http.Request) { r.Header.Set(middleware.HopHeader, "1") }, other},
		"made up, twice":     {func(r *http.Request) { r.Header[middleware.HopHeader] = []string{"1", "1"} }, other},
		"strips a header":    {func(r *http.Request) { r.Header.Set("Connection", "keep-alive, X-User") }, x},
		"strips the address": {func(r *http.Request) { r.Header.Add("Connection", "X-Forwarded-For") }, x},
		"another method":     {func(r *http.Request) { r.Method = "PUT" }, x},
		"no path":            {func(r *http.Request) { r.URL.Opaque = "urn:order" }, x},
		"its body was read": {func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader("a=b")), 3
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}, x},
	} {
		r := request(t, x.Server, order)
		c.change(r)
		if res := do(t, x.Server, r); res.body != c.where.URL {
			t.Errorf("%s: served at %s, want %s", name, res.body, c.where.URL)
		}
	}
	if res := do(t, x.Server, request(t, x.Server, "%00")); problemOf(t, res).Type != middleware.TypeKey {
		t.Errorf("a bad key: %d %s", res.StatusCode, res.body)
	}
	if x.dials.Load() == 0 || other.dials.Load() != 0 {
		t.Errorf("%d and %d connections", x.dials.Load(), other.dials.Load())
	}
}

func TestASkippedKeyAndAHeldLockStayHere(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 2, func(x *node) http.Handler {
		skip := func(r *http.Request) (string, error) {
			if r.Header.Get("Skip") != "" {
				return "", middleware.ErrSkip
			}
			return byOrder(r)
		}
		h := middleware.Route(x.c, skip, &middleware.RouteOptions{Transport: x.tr})(middleware.Serialize(x.c, byOrder, nil)(http.HandlerFunc(x.name)))
		outside := middleware.Serialize(x.c, byOrder, &middleware.SerializeOptions{Methods: []string{"PUT"}})
		return outside(h)
	})
	x, other := nodes[0], nodes[1]
	for _, change := range []func(*http.Request){
		func(r *http.Request) { r.Header.Set("Skip", "1") },
		func(r *http.Request) { r.Method = "PUT" }, // the owner would wait for the lock that is held here
	} {
		r := request(t, x.Server, orderOf(t, x, other))
		change(r)
		if res := do(t, x.Server, r); res.body != x.URL {
			t.Errorf("%d %s", res.StatusCode, res.body)
		}
	}
}

func TestWithoutAClusterAllIsServedHere(t *testing.T) {
	c := start(t, fallback.NewMemory(), nil)
	g := newGate()
	close(g.out)
	s := serve(t, middleware.Route(c, byOrder, nil)(g))
	if res := do(t, s, request(t, s, "1")); res.body != "done" {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
}

func TestHeadersThatBothNodesSetAreSentOnce(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 2, func(x *node) http.Handler {
		h := x.routed(x.name)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", "*") // twice, browsers refuse it
			w.Header().Set("Node", x.URL)
			if r.Header[middleware.HopHeader] == nil {
				w.Header().Set("First", "here")
			}
			h.ServeHTTP(w, r)
		})
	})
	x, other := nodes[0], nodes[1]
	got := do(t, x.Server, request(t, x.Server, orderOf(t, x, other))).Header
	for name, want := range map[string]string{"Access-Control-Allow-Origin": "*", "Node": other.URL, "First": "here"} {
		if !slices.Equal(got[name], []string{want}) {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
}

// Also if the owner says something before its response, even if only that the client may send the
// body.
func TestHeadersThatWereSetHereOutlastInformationalResponses(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 2, func(x *node) http.Handler {
		h := x.routed(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // says 100
			w.WriteHeader(http.StatusEarlyHints)
			if r.URL.Query().Has("abort") {
				panic(http.ErrAbortHandler)
			}
			w.Header().Set("Node", x.URL)
		})
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header[middleware.HopHeader] == nil {
				w.Header().Set("First", "here")
				w.Header().Set("Node", "here")
			}
			h.ServeHTTP(w, r)
		})
	})
	x, other := nodes[0], nodes[1]
	order := orderOf(t, x, other)
	for query, want := range map[string][2]string{"": {other.URL, "here"}, "&abort": {"here", "here"}} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, x.URL+"/?order="+order+query, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Expect", "100-continue")
		got := do(t, x.Server, r)
		if !slices.Equal(got.Header["Node"], want[:1]) || !slices.Equal(got.Header["First"], want[1:]) {
			t.Errorf("%q: %d %v", query, got.StatusCode, got.Header)
		}
	}
}

func TestURLsOfNodes(t *testing.T) {
	t.Parallel()
	takes.Seconds(t)
	for _, x := range []struct {
		url string
		ok  bool
	}{
		{"", false}, {"10.0.0.1:80", false}, {"ftp://h", false}, {"http://", false}, {"http://h/base", false}, {"http://u@h", false},
		{"http://h?x", false}, {"%", false}, {"the other's", true},
	} {
		var log strings.Builder
		nodes := cluster(t, 2, func(n *node) http.Handler {
			o := &middleware.RouteOptions{Transport: n.tr, Logger: slog.New(slog.NewTextHandler(&log, nil)), Avoid: time.Minute}
			o.URL = func(i coord.NodeInfo) (*url.URL, error) {
				if x.ok {
					return url.Parse(i.Service + "/")
				}
				return url.Parse(x.url)
			}
			return middleware.Route(n.c, byOrder, o)(http.HandlerFunc(n.name))
		})
		n, other := nodes[0], nodes[1]
		want := n
		if x.ok {
			want = other
		}
		for range 2 {
			if res := do(t, n.Server, request(t, n.Server, orderOf(t, n, other))); res.body != want.URL {
				t.Errorf("%q: %d %s", x.url, res.StatusCode, res.body)
			}
		}
		if said := strings.Count(log.String(), "not forwarded"); said > 1 || x.ok == (said > 0) {
			t.Errorf("%q: log %q", x.url, log.String())
		}
	}
}
