package middleware_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/middleware"
)

// bothVersions starts servers that speak HTTP/1.1 and HTTP/2; the clients speak HTTP/2.
var bothVersions = map[string]func(testing.TB, http.Handler) *httptest.Server{
	"TLS": overHTTP2["TLS"],
	"h2c": func(t testing.TB, h http.Handler) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetHTTP1(true)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		begin(t, s, s.Start)
		p := new(http.Protocols)
		p.SetUnencryptedHTTP2(true)
		s.Client().Transport.(*http.Transport).Protocols = p
		return s
	},
}

// oldClient returns a client of the server that speaks HTTP/1.1.
func oldClient(t testing.TB, s *httptest.Server) *http.Client {
	tr := s.Client().Transport.(*http.Transport).Clone()
	tr.Protocols = new(http.Protocols)
	tr.Protocols.SetHTTP1(true)
	if tr.TLSClientConfig != nil {
		tr.TLSClientConfig.NextProtos = nil
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// The owner's handler sees the version that the client speaks, as the one here would.
func TestRoute_SpeaksTheClientsVersion(t *testing.T) {
	t.Parallel()
	for name, serve := range bothVersions {
		t.Run(name, func(t *testing.T) {
			nodes := clusterOf(t, 2, serve, func(x *node) http.Handler {
				return x.routed(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Upgrade") != "" {
						conn, rw, err := http.NewResponseController(w).Hijack()
						if err != nil {
							t.Error(err)
							return
						}
						defer conn.Close()
						fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
						rw.Flush()
						io.Copy(conn, rw)
						return
					}
					fmt.Fprint(w, r.Proto, " at ", x.URL)
				})
			})
			x, other := nodes[0], nodes[1]
			order := orderOf(t, x, other)
			// A connection is idle a moment after its answer was read, so the next request may come
			// too early for it.
			for round, dials := 1, int32(-1); dials != x.dials.Load(); round++ {
				if dials = x.dials.Load(); round > 20 {
					t.Fatalf("%d connections in %d rounds: none has used those that were there", dials, round)
				}
				for proto, client := range map[string]*http.Client{"HTTP/1.1": oldClient(t, x.Server), "HTTP/2.0": x.Client()} {
					res, err := client.Do(request(t, x.Server, order))
					if err != nil {
						t.Fatal(err)
					}
					body, _ := io.ReadAll(res.Body)
					res.Body.Close()
					if res.Proto != proto || string(body) != proto+" at "+other.URL {
						t.Errorf("%s: %s", res.Proto, body)
					}
				}
			}
			if n := x.dials.Load(); n < 2 { // one of each version
				t.Errorf("%d connections", n)
			}

			var conn net.Conn
			var err error
			if tc := x.tr.TLSClientConfig; tc != nil {
				tc = tc.Clone()
				tc.NextProtos = nil
				conn, err = tls.Dial("tcp", x.Listener.Addr().String(), tc)
			} else {
				conn, err = net.Dial("tcp", x.Listener.Addr().String())
			}
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "GET /?order=%s HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", order)
			br := bufio.NewReader(conn)
			res, err := http.ReadResponse(br, nil)
			if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
				t.Fatal(res, err)
			}
			defer res.Body.Close()
			fmt.Fprint(conn, "hello")
			text := make([]byte, 5)
			if _, err := io.ReadFull(br, text); err != nil || string(text) != "hello" {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}

// An owner that answers early is heard, although the client is still sending, and the handler did
// nothing to allow it.
func TestRoute_EarlyAnswerOverHTTP2(t *testing.T) {
	t.Parallel()
	for name, serve := range bothVersions {
		t.Run(name, func(t *testing.T) {
			nodes := clusterOf(t, 2, serve, func(x *node) http.Handler {
				return x.routed(func(w http.ResponseWriter, r *http.Request) { http.Error(w, x.URL, http.StatusRequestEntityTooLarge) })
			})
			x, other := nodes[0], nodes[1]
			for range 20 {
				pr, pw := io.Pipe()
				r := request(t, x.Server, orderOf(t, x, other))
				r.Body, r.ContentLength = pr, -1
				go pw.Write(make([]byte, 100_000))
				res, err := x.Client().Do(r)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(res.Body)
				res.Body.Close()
				pr.Close()
				if res.StatusCode != http.StatusRequestEntityTooLarge || strings.TrimSpace(string(body)) != other.URL || err != nil {
					t.Errorf("%d %s, %v", res.StatusCode, body, err)
				}
			}
		})
	}
}

// Large bodies that wait for the lock do not keep that of the request that has it from arriving.
func TestRoute_WaitingBodiesBlockNoOther(t *testing.T) {
	t.Parallel()
	takes.Seconds(t)
	first := make(chan struct{})
	nodes := clusterOf(t, 2, bothVersions["h2c"], func(x *node) http.Handler {
		return x.routed(middleware.Serialize(x.c, byOrder, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("First") != "" {
				first <- struct{}{}
			}
			n, err := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n, " ", err)
		})).ServeHTTP)
	})
	x, other := nodes[0], nodes[1]
	order := orderOf(t, x, other)
	const size = 4 << 20
	var wg sync.WaitGroup
	send := func(body io.Reader, header string) {
		client := &http.Client{Transport: x.Client().Transport.(*http.Transport).Clone()} // a connection of its own
		defer client.CloseIdleConnections()
		r := request(t, x.Server, order)
		r.Body, r.ContentLength = io.NopCloser(body), -1
		r.Header.Set(header, "1")
		res, err := client.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer res.Body.Close()
		if text, err := io.ReadAll(res.Body); string(text) != fmt.Sprint(size, " <nil>") || err != nil {
			t.Errorf("%d %s %v", res.StatusCode, text, err)
		}
	}
	pr, pw := io.Pipe()
	wg.Go(func() { send(pr, "First") })
	wg.Go(func() { pw.Write(make([]byte, 100_000)) })
	from(t, first, "the first request")
	for range 3 {
		wg.Go(func() { send(strings.NewReader(strings.Repeat("x", size)), "Next") })
	}
	waiting(t, other.c, 3)
	pw.Write(make([]byte, size-100_000))
	pw.Close()
	wg.Wait()
}

// A node whose URL leads to a server that knows HTTP/1.1 only gets that, trailers included; but
// gRPC, which would be refused there, is served here.
func TestRoute_OwnerWithoutHTTP2(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 2, func(x *node) http.Handler {
		return x.routed(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == "PRI" { // the question whether there is HTTP/2
				http.Error(w, "", http.StatusBadRequest)
				return
			}
			body, err := io.ReadAll(r.Body)
			fmt.Fprint(w, r.Proto, " at ", x.URL, " ", string(body), err, r.Trailer)
		})
	})
	x, other := nodes[0], nodes[1]
	front := bothVersions["TLS"](t, x.Config.Handler) // the same node, by HTTP/2
	order := orderOf(t, x, other)
	for range 2 {
		for kind, want := range map[string]string{
			"text/plain": "HTTP/1.1 at " + other.URL, "application/grpc": "HTTP/2.0 at " + x.URL, "application/grpc+proto": "HTTP/2.0 at " + x.URL,
			"application/grpc-web": "HTTP/1.1 at " + other.URL,
		} {
			r := request(t, front, order)
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader("body")), 4
			r.Trailer = http.Header{"X-Check": {"42"}}
			r.Header.Set("Content-Type", kind)
			if res := do(t, front, r); res.body != want+" body<nil> map[X-Check:[42]]" {
				t.Errorf("%s: %s", kind, res.body)
			}
		}
	}
}

// Connections that the owner closes while they are idle are not used, and those in use are not
// shared.
func TestTransport_Connections(t *testing.T) {
	t.Parallel()
	var gate sync.WaitGroup
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/together" {
			gate.Done()
			gate.Wait()
		}
		io.WriteString(w, r.Proto)
	})
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	begin(t, s, s.Start)
	tr := middleware.NewTransport()
	defer tr.CloseIdleConnections()
	tr.MaxIdleConnsPerHost = 2
	var mu sync.Mutex
	open, dials := map[net.Conn]bool{}, 0
	dial := tr.DialContext
	tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		mu.Lock()
		defer mu.Unlock()
		dials++
		c := &watched{Conn: conn}
		c.closed = func() { mu.Lock(); defer mu.Unlock(); delete(open, c) }
		open[c] = true
		return c, err
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(open) }
	dialed := func() int { mu.Lock(); defer mu.Unlock(); return dials }
	get := func(path string) {
		r, _ := http.NewRequest(http.MethodPost, s.URL+path, strings.NewReader("body"))
		r.ProtoMajor, r.ProtoMinor = 2, 0
		r.GetBody = nil
		res, err := tr.RoundTrip(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer res.Body.Close()
		if body, err := io.ReadAll(res.Body); string(body) != "HTTP/2.0" || err != nil {
			t.Errorf("%s, %v", body, err)
		}
	}
	for range 10 {
		get("/")
	}
	if dialed() > 5 { // the end of a request may be known after the next one has begun
		t.Errorf("%d connections for 10 requests, one after another", dialed())
	}
	before := dialed()
	gate.Add(5)
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() { get("/together") })
	}
	wg.Wait()
	if n := dialed() - before; n < 3 { // two may have been idle
		t.Errorf("%d more connections for 5 requests at a time", n)
	}
	await.Until(t, "at most two idle connections", func() bool { return count() <= 2 })
	s.CloseClientConnections()
	await.Until(t, "the end of idle connections", func() bool { return count() == 0 })
	get("/")
	tr.CloseIdleConnections()
	await.Until(t, "the end of all connections", func() bool { return count() == 0 })
}

type watched struct {
	net.Conn
	closed func()
}

func (c *watched) Close() error {
	c.closed()
	return c.Conn.Close()
}

// The zero Transport has the settings of NewTransport.
func TestTransport_Zero(t *testing.T) {
	t.Parallel()
	takes.Seconds(t)
	new(middleware.Transport).CloseIdleConnections()
	nodes := cluster(t, 2, func(x *node) http.Handler {
		x.tr = new(middleware.Transport)
		t.Cleanup(x.tr.CloseIdleConnections)
		return x.routed(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, x.URL) })
	})
	x, owner := nodes[0], nodes[1]
	if res := do(t, x.Server, request(t, x.Server, orderOf(t, x, owner))); res.body != owner.URL {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
	if got, want := x.tr.IdleConnTimeout, middleware.NewTransport().IdleConnTimeout; got != want {
		t.Errorf("idle connections last %v, want %v", got, want)
	}
}

// An http.Transport that says nothing of idle connections keeps as many as net/http does, also by
// HTTP/2.
func TestTransport_DefaultOfIdleConnections(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	var dials atomic.Int32
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			dials.Add(1)
		}
	}
	begin(t, s, s.Start)
	tr := &middleware.Transport{Transport: new(http.Transport)}
	defer tr.CloseIdleConnections()
	for range 10 {
		r, err := http.NewRequest(http.MethodGet, s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.ProtoMajor, r.ProtoMinor = 2, 0
		res, err := tr.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(res.Body); string(body) != "HTTP/2.0" || err != nil {
			t.Errorf("%s, %v", body, err)
		}
		res.Body.Close()
	}
	if n := dials.Load(); n == 10 { // the end of a request may be known after the next one has begun
		t.Errorf("%d connections for 10 requests, one after another: none was used again", n)
	}
}
