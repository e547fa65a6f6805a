package middleware_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/middleware"
)

const partitions = 61

// node is one process of a cluster, but for being in this one.
type node struct {
	*httptest.Server
	c     *coord.Coordinator
	tr    *middleware.Transport
	dials atomic.Int32
}

// cluster starts nodes with a handler each, made by handler, and waits until they have shared out
// the partitions.
func cluster(t testing.TB, n int, handler func(*node) http.Handler) []*node {
	t.Helper()
	return clusterOf(t, n, serve, handler)
}

// clusterOf is cluster with servers of the test's choice, whose clients know how to talk to them.
func clusterOf(t testing.TB, n int, serve func(testing.TB, http.Handler) *httptest.Server, handler func(*node) http.Handler) []*node {
	t.Helper()
	a := fallback.NewMemory()
	nodes := make([]*node, n)
	for i := range nodes {
		x := &node{tr: middleware.NewTransport()}
		x.tr.TLSHandshakeTimeout = limit // or a request is served here, where a busy machine takes longer than 2 s
		dial := x.tr.DialContext
		x.tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			x.dials.Add(1)
			return dial(ctx, network, addr)
		}
		var h atomic.Pointer[http.Handler]
		x.Server = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*h.Load()).ServeHTTP(w, r) }))
		t.Cleanup(x.tr.CloseIdleConnections)
		client := x.Client().Transport.(*http.Transport)
		x.tr.TLSClientConfig = client.TLSClientConfig.Clone()
		x.c = start(t, a, &coord.Options{
			// A busy machine's delays are not taken for faults.
			SessionTTL: time.Minute, RenewEvery: 750 * time.Millisecond, Grace: 80 * time.Second, Partitions: partitions,
			Cluster: &coord.Cluster{
				Membership: gossip.Start,
				Gossip:     "127.0.0.1:0", Debounce: 200 * time.Millisecond, Keepalive: 4 * time.Second, Takeover: -1, Service: x.URL,
			},
		})
		made := handler(x)
		h.Store(&made)
		nodes[i] = x
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // a busy machine
	defer cancel()
	for _, x := range nodes {
		if err := x.c.Settled(ctx, n); err != nil {
			t.Fatal(err)
		}
	}
	return nodes
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
