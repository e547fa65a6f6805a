package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/middleware"
)

const partitions = 61

// node is one process of a cluster, but for being in this one.
type node struct {
	*httptest.Server
	c     *coord.Coordinator
	tr    *http.Transport
	dials atomic.Int32
}

// cluster starts nodes that serve what handler makes for each of them, and waits until they have shared out the partitions.
func cluster(t testing.TB, n int, handler func(*node) http.Handler) []*node {
	t.Helper()
	a := fallback.NewMemory()
	nodes := make([]*node, n)
	for i := range nodes {
		x := &node{tr: middleware.NewTransport()}
		dial := x.tr.DialContext
		x.tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			x.dials.Add(1)
			return dial(ctx, network, addr)
		}
		var h atomic.Pointer[http.Handler]
		x.Server = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*h.Load()).ServeHTTP(w, r) }))
		t.Cleanup(x.tr.CloseIdleConnections)
		x.c = start(t, a, &coord.Options{
			SessionTTL: 3 * time.Second, Grace: 4 * time.Second, Partitions: partitions,
			Cluster: &coord.Cluster{
				Gossip: "127.0.0.1:0", Debounce: 200 * time.Millisecond, Keepalive: 200 * time.Millisecond, Service: x.URL,
			},
		})
		made := handler(x)
		h.Store(&made)
		nodes[i] = x
	}
	await(t, "a settled cluster", func() bool { return settled(t, nodes) })
	return nodes
}

// settled tells whether all nodes own something, and agree about who owns what, and the owners grant it from memory.
func settled(t testing.TB, nodes []*node) bool {
	owned := 0
	var before uint64
	for _, x := range nodes {
		s := x.c.Stats()
		owned += s.Owned
		before += s.Granted[coord.PathForwarded] + s.Granted[coord.PathArbiter]
		if s.Owned == 0 {
			return false
		}
	}
	if owned != partitions {
		return false
	}
	for i := range 300 { // enough for all partitions
		key := fmt.Sprint("order/", i)
		owner, _ := nodes[0].c.Owner(key)
		for _, x := range nodes {
			o, _ := x.c.Owner(key)
			if o.Name == "" || o.Name != owner.Name || o.Service == "" || o.State != "active" {
				return false
			}
			if o.Self {
				l, err := x.c.Lock(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				l.Unlock()
			}
		}
	}
	for _, x := range nodes {
		s := x.c.Stats()
		before -= s.Granted[coord.PathForwarded] + s.Granted[coord.PathArbiter]
	}
	return before == 0
}

// orderOf returns an order that the other node owns, as x sees it.
func orderOf(t testing.TB, x, other *node) string {
	t.Helper()
	for i := range 1000 {
		if n, ok := x.c.Owner(fmt.Sprint("order/", i)); ok && n.Service == other.URL {
			return fmt.Sprint(i)
		}
	}
	t.Fatal("the other node owns nothing")
	return ""
}

// routed is the usual handler of a node.
func (x *node) routed(h http.HandlerFunc) http.Handler {
	return middleware.Route(x.c, byOrder, &middleware.RouteOptions{Transport: x.tr})(h)
}

func TestRequestsAreServedByTheOwner(t *testing.T) {
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
	if seen.Host != "shop.example" || seen.RequestURI != r.URL.Opaque || seen.URL.RawPath != "/a%2Fb//c" || seen.Header[middleware.HopHeader] == nil {
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
		"as it is":             {func(*http.Request) {}, other},
		"keep-alive":           {func(r *http.Request) { r.Header.Set("Connection", "Keep-Alive") }, other},
		"close":                {func(r *http.Request) { r.Close = true }, other},
		"forwarded before":     {func(r *http.Request) { r.Header.Set(middleware.HopHeader, "") }, x},
		"forwarded by whoever": {func(r *http.Request) { r.Header.Set(middleware.HopHeader, "http://evil") }, x},
		"strips a header":      {func(r *http.Request) { r.Header.Set("Connection", "keep-alive, X-User") }, x},
		"strips the address":   {func(r *http.Request) { r.Header.Add("Connection", "X-Forwarded-For") }, x},
		"another method":       {func(r *http.Request) { r.Method = "PUT" }, x},
		"no path":              {func(r *http.Request) { r.URL.Opaque = "urn:order" }, x},
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

func TestURLsOfNodes(t *testing.T) {
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

func TestANodeWithoutAnAddress(t *testing.T) {
	nodes := cluster(t, 2, func(x *node) http.Handler {
		return middleware.Route(x.c, byOrder, &middleware.RouteOptions{Transport: x.tr, URL: func(coord.NodeInfo) (*url.URL, error) {
			return nil, errors.New("unknown")
		}})(http.HandlerFunc(x.name))
	})
	x := nodes[0]
	if res := do(t, x.Server, request(t, x.Server, orderOf(t, x, nodes[1]))); res.body != x.URL {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
}

func TestAnOwnerThatIsDownCostsOneDial(t *testing.T) {
	const avoid = 300 * time.Millisecond
	nodes := cluster(t, 2, func(x *node) http.Handler {
		return middleware.Route(x.c, byOrder, &middleware.RouteOptions{Transport: x.tr, Avoid: avoid})(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				fmt.Fprintf(w, "%s %s %v", x.URL, body, err)
			}))
	})
	x, other := nodes[0], nodes[1]
	order := orderOf(t, x, other)
	addr := other.Listener.Addr().String()
	other.Close() // the coordinator is there
	send := func() string {
		r := request(t, x.Server, order)
		r.Body = io.NopCloser(strings.NewReader("body"))
		return do(t, x.Server, r).body
	}
	begun := time.Now()
	for range 10 {
		if got := send(); got != x.URL+" body <nil>" {
			t.Errorf("%q", got)
		}
	}
	if d := x.dials.Load(); d != 1 && time.Since(begun) < avoid {
		t.Errorf("%d dials for 10 requests", d)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skip(err) // somebody else has taken the port
	}
	again := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "again") })}
	go again.Serve(l)
	defer again.Close()
	await(t, "the owner is tried again", func() bool { return send() == "again" })
	for range 3 {
		if got := send(); got != "again" {
			t.Errorf("%q", got)
		}
	}
}

func TestAnOwnerThatBreaksOffIsNotAskedTwice(t *testing.T) {
	var served atomic.Int32
	nodes := cluster(t, 2, func(x *node) http.Handler {
		return x.routed(func(w http.ResponseWriter, r *http.Request) {
			served.Add(1)
			io.ReadAll(r.Body)
			panic(http.ErrAbortHandler)
		})
	})
	x, other := nodes[0], nodes[1]
	r := request(t, x.Server, orderOf(t, x, other))
	r.Body = io.NopCloser(strings.NewReader("body"))
	res := do(t, x.Server, r)
	if p := problemOf(t, res); res.StatusCode != http.StatusBadGateway || p.Type != middleware.TypeOwner || res.Header.Get("Retry-After") != "" {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
	if served.Load() != 1 {
		t.Errorf("served %d times", served.Load())
	}
}

// reader is a transport that reads some of the body before it fails to connect.
type reader struct{ n int }

func (t reader) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.n > 0 {
		io.ReadFull(r.Body, make([]byte, t.n))
	}
	return nil, &net.OpError{Op: map[bool]string{true: "dial", false: "write"}[t.n >= 0], Err: errors.New("refused")}
}

func TestABodyIsNeverSentTwice(t *testing.T) {
	for n, want := range map[int]int{0: 200, 1: 502, 4: 502} {
		nodes := cluster(t, 2, func(x *node) http.Handler {
			return middleware.Route(x.c, byOrder, &middleware.RouteOptions{Transport: reader{n}})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(w, r.Body)
			}))
		})
		r := request(t, nodes[0].Server, orderOf(t, nodes[0], nodes[1]))
		r.Body = io.NopCloser(strings.NewReader("body"))
		res := do(t, nodes[0].Server, r)
		if res.StatusCode != want || want == 200 && res.body != "body" {
			t.Errorf("%d bytes read: %d %s", n, res.StatusCode, res.body)
		}
	}
}

func TestATransportThatSaysLittleIsNotTrusted(t *testing.T) {
	nodes := cluster(t, 2, func(x *node) http.Handler {
		return middleware.Route(x.c, byOrder, &middleware.RouteOptions{Transport: reader{-1}})(http.HandlerFunc(x.name))
	})
	r := request(t, nodes[0].Server, orderOf(t, nodes[0], nodes[1])) // no body, and it failed by writing
	if res := do(t, nodes[0].Server, r); res.StatusCode != http.StatusBadGateway {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
}

func TestStreamsBothWays(t *testing.T) {
	nodes := cluster(t, 2, func(x *node) http.Handler {
		return x.routed(func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			if err := rc.EnableFullDuplex(); err != nil {
				t.Error(err)
			}
			w.Header().Set("Trailer", "Sum")
			w.Header().Set("At", x.URL)
			rc.Flush()
			lines := bufio.NewScanner(r.Body)
			n := 0
			for lines.Scan() {
				n++
				fmt.Fprintln(w, "echo "+lines.Text())
				rc.Flush()
			}
			w.Header().Set("Sum", fmt.Sprint(n, " ", r.Trailer.Get("Check")))
			w.Header().Set(http.TrailerPrefix+"Late", "too")
		})
	})
	x, other := nodes[0], nodes[1]
	front := httptest.NewUnstartedServer(x.Config.Handler) // the same node, by HTTP/2
	front.EnableHTTP2 = true
	front.StartTLS()
	defer front.Close()
	for proto, s := range map[string]*httptest.Server{"HTTP/1.1": x.Server, "HTTP/2.0": front} {
		t.Run(proto, func(t *testing.T) { talk(t, s, proto, orderOf(t, x, other), other.URL) })
	}
}

// talk sends lines, each after the answer to the one before, and expects them to be served at a URL.
func talk(t *testing.T, s *httptest.Server, proto, order, at string) {
	pr, pw := io.Pipe()
	r := request(t, s, order)
	r.Body, r.Trailer = pr, http.Header{"Check": {"sum"}}
	res, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.Header.Get("At") != at || res.Proto != proto {
		t.Errorf("served at %s, by %s", res.Header.Get("At"), res.Proto)
	}
	in := bufio.NewReader(res.Body)
	for i := range 3 { // each line comes back before the next one is sent
		fmt.Fprintln(pw, "line", i)
		if line, err := in.ReadString('\n'); line != fmt.Sprintf("echo line %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
	}
	pw.Close()
	if rest, err := io.ReadAll(in); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if res.Trailer.Get("Sum") != "3 sum" || res.Trailer.Get("Late") != "too" {
		t.Errorf("trailers %v", res.Trailer)
	}
}

// Also of a response whose length is known, nothing is kept back.
func TestTheBeginningOfAResponseIsNotKept(t *testing.T) {
	rest := make(chan struct{})
	nodes := cluster(t, 2, func(x *node) http.Handler {
		return x.routed(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "10")
			io.WriteString(w, "first")
			http.NewResponseController(w).Flush()
			<-rest
			io.WriteString(w, "later")
		})
	})
	x, other := nodes[0], nodes[1]
	res, err := x.Client().Do(request(t, x.Server, orderOf(t, x, other)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	buf := make([]byte, 5)
	if _, err := io.ReadFull(res.Body, buf); string(buf) != "first" {
		t.Errorf("%q, %v", buf, err)
	}
	close(rest)
	if later, err := io.ReadAll(res.Body); string(later) != "later" {
		t.Errorf("%q, %v", later, err)
	}
}

// The owner answers before it has got the body, and never reads it.
func TestAnOwnerThatAnswersEarly(t *testing.T) {
	nodes := cluster(t, 2, func(x *node) http.Handler {
		return x.routed(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Late") != "" { // or this server would wait for the body, before it answers
				http.NewResponseController(w).EnableFullDuplex()
				w.Header().Set("Connection", "close")
			}
			w.Header().Set("Content-Length", fmt.Sprint(len(x.URL)))
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			io.WriteString(w, x.URL)
		})
	})
	x, other := nodes[0], nodes[1]
	order := orderOf(t, x, other)
	for _, size := range []int{1, 1000, 1 << 20} {
		for i := range 20 {
			header, late := "", i%2 == 1 // the body comes after the answer
			if late {
				header = "Late: 1\r\n"
			}
			conn, err := net.Dial("tcp", x.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "POST /?order=%s HTTP/1.1\r\nHost: h\r\n%sContent-Length: %d\r\n\r\n", order, header, size)
			if size < 1<<20 && !late { // else the rest never comes
				conn.Write(make([]byte, size))
			}
			br := bufio.NewReader(conn)
			res, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(res.Body); res.StatusCode != http.StatusRequestEntityTooLarge || string(body) != other.URL || err != nil {
				t.Errorf("%d %s, %v", res.StatusCode, body, err)
			}
			res.Body.Close()
			if late {
				conn.Write(make([]byte, size))
				if _, err := br.ReadByte(); err == nil || !res.Close {
					t.Errorf("the connection goes on: %v", err)
				}
			}
			conn.Close()
		}
	}
}

func TestUpgrades(t *testing.T) {
	nodes := cluster(t, 2, func(x *node) http.Handler {
		return x.routed(middleware.Serialize(x.c, byOrder, &middleware.SerializeOptions{Methods: []string{"GET"}})(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Connection", "Upgrade")
				w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
				w.WriteHeader(http.StatusSwitchingProtocols)
				conn, rw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				io.Copy(conn, rw)
			})).ServeHTTP)
	})
	x, other := nodes[0], nodes[1]
	conn, err := net.Dial("tcp", x.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /?order=%s HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n", orderOf(t, x, other))
	br := bufio.NewReader(conn)
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Upgrade") != "websocket" {
		t.Fatalf("%v %v", res, err)
	}
	defer res.Body.Close()
	for range 3 {
		fmt.Fprint(conn, "hello")
		buf := make([]byte, 5)
		if _, err := io.ReadFull(br, buf); err != nil || string(buf) != "hello" {
			t.Errorf("%q, %v", buf, err)
		}
	}
	if x.c.Stats().Locked != 0 || other.c.Stats().Locked != 1 {
		t.Errorf("%d and %d locks", x.c.Stats().Locked, other.c.Stats().Locked)
	}
	conn.Close()
	idle(t, other.c)
}

func TestInformationalResponsesAndExpectContinue(t *testing.T) {
	nodes := cluster(t, 2, func(x *node) http.Handler {
		return x.routed(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Link", "</a.css>")
			w.WriteHeader(http.StatusEarlyHints)
			body, err := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %v", x.URL, body, err)
		})
	})
	x, other := nodes[0], nodes[1]
	conn, err := net.Dial("tcp", x.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /?order=%s HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n", orderOf(t, x, other))
	br := bufio.NewReader(conn)
	next := func() *http.Response {
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	// Both nodes may say 100, so that it can come twice, as it may in HTTP.
	for seen := map[int]bool{}; !seen[http.StatusContinue] || !seen[http.StatusEarlyHints]; {
		res := next()
		res.Body.Close()
		seen[res.StatusCode] = true
		if res.StatusCode == http.StatusEarlyHints && res.Header.Get("Link") != "</a.css>" {
			t.Errorf("%v", res.Header)
		}
		if res.StatusCode >= http.StatusOK {
			t.Fatalf("%d before the body was sent", res.StatusCode)
		}
	}
	fmt.Fprint(conn, "body")
	res := next()
	for res.StatusCode < http.StatusOK {
		res.Body.Close()
		res = next()
	}
	defer res.Body.Close()
	if body, _ := io.ReadAll(res.Body); string(body) != other.URL+" body <nil>" {
		t.Errorf("%q", body)
	}
}

func TestAClientThatGoesAwayEndsTheRequestAtTheOwner(t *testing.T) {
	in, ended := make(chan string, 1), make(chan error, 1)
	nodes := cluster(t, 2, func(x *node) http.Handler {
		return x.routed(func(w http.ResponseWriter, r *http.Request) {
			in <- x.URL
			<-r.Context().Done()
			ended <- r.Context().Err()
		})
	})
	x, other := nodes[0], nodes[1]
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if at := <-in; at != other.URL {
			t.Errorf("served at %s", at)
		}
		cancel()
	}()
	res, err := x.Client().Do(request(t, x.Server, orderOf(t, x, other)).WithContext(ctx))
	if err == nil {
		res.Body.Close()
		t.Errorf("%d", res.StatusCode)
	}
	<-ended
}

func TestANodeThatHasLeftIsNotForwardedTo(t *testing.T) {
	nodes := cluster(t, 2, func(x *node) http.Handler { return x.routed(x.name) })
	x, other := nodes[0], nodes[1]
	order := orderOf(t, x, other)
	if err := other.c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "served here", func() bool { return do(t, x.Server, request(t, x.Server, order)).body == x.URL })
}

// A node that leaves is the owner until the others have placed its keys anew; its server may be closing already.
func TestANodeThatLeavesIsNotForwardedTo(t *testing.T) {
	nodes := cluster(t, 2, func(x *node) http.Handler { return x.routed(x.name) })
	x, other := nodes[0], nodes[1]
	order := orderOf(t, x, other)
	l, err := other.c.Lock(t.Context(), "held") // keeps it from ending
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- other.c.Close(context.Background()) }()
	await(t, "a node that leaves", func() bool {
		return slices.ContainsFunc(x.c.Nodes(), func(n coord.NodeInfo) bool { return !n.Self && n.State == "leaving" })
	})
	n, _ := x.c.Owner("order/" + order)
	t.Logf("the owner is the one that leaves: %v", n.Service == other.URL)
	if res := do(t, x.Server, request(t, x.Server, order)); res.body != x.URL {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
