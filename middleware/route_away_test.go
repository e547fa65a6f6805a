package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/loopback"
	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/middleware"
)

func TestANodeWithoutAnAddress(t *testing.T) {
	t.Parallel()
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
	takes.Seconds(t)
	t.Parallel()
	const avoid = 300 * time.Millisecond
	nodes := clusterOf(t, 2, serveApart, func(x *node) http.Handler {
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
		t.Fatal(err)
	}
	again := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "again") })}
	go again.Serve(l)
	defer again.Close()
	await.Until(t, "the owner is tried again", func() bool { return send() == "again" })
	for range 3 {
		if got := send(); got != "again" {
			t.Errorf("%q", got)
		}
	}
}

// serveApart is serve at an address that no other server gets while the server is down.
func serveApart(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	return serveAt(t, loopback.Address(t), h)
}

// A client's upgrade cannot make other requests do without the owner.
func TestAnUpgradeThatCannotBeForwardedIsServedHere(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 2, func(x *node) http.Handler { return x.routed(x.name) })
	x, other := nodes[0], nodes[1]
	order := orderOf(t, x, other)
	r := request(t, x.Server, order)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "caf\xe9")
	if res := do(t, x.Server, r); res.body != x.URL {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
	if res := do(t, x.Server, request(t, x.Server, order)); res.body != other.URL {
		t.Errorf("the owner is avoided: %d %s", res.StatusCode, res.body)
	}
}

func TestAnOwnerThatBreaksOffIsNotAskedTwice(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	takes.Seconds(t)
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
	t.Parallel()
	nodes := cluster(t, 2, func(x *node) http.Handler {
		return middleware.Route(x.c, byOrder, &middleware.RouteOptions{Transport: reader{-1}})(http.HandlerFunc(x.name))
	})
	r := request(t, nodes[0].Server, orderOf(t, nodes[0], nodes[1])) // no body, and it failed by writing
	if res := do(t, nodes[0].Server, r); res.StatusCode != http.StatusBadGateway {
		t.Errorf("%d %s", res.StatusCode, res.body)
	}
}

func TestANodeThatHasLeftIsNotForwardedTo(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 2, func(x *node) http.Handler { return x.routed(x.name) })
	x, other := nodes[0], nodes[1]
	order := orderOf(t, x, other)
	if err := other.c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "served here", func() bool { return do(t, x.Server, request(t, x.Server, order)).body == x.URL })
}

// A node that leaves is the owner until the others have placed its keys anew; its server may be
// closing already.
func TestANodeThatLeavesIsNotForwardedTo(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 2, func(x *node) http.Handler { return x.routed(x.name) })
	x, other := nodes[0], nodes[1]
	order := orderOf(t, x, other)
	l, err := other.c.Lock(t.Context(), "held") // keeps it from ending
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- other.c.Close(context.Background()) }()
	await.Until(t, "a node that leaves", func() bool {
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
