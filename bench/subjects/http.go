package subjects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/figures"
	"github.com/holdfast-go/holdfast/middleware"
)

// httpSizes: each block measures everything, by turns.
type httpSizes struct {
	Blocks int
	Calls  int // of the handler without a network, of each kind per block
	Posts  int // over the network, of each kind per block
}

// Limits for requests.
const (
	httpSerialize = 5   // microseconds more than the handler alone, at most
	httpRoute     = 1.3 // times a hop by httputil.ReverseProxy, at most
)

// Lanes of http, in the order of the table. The first three are without a network.
const (
	httpBare       = "handler that does nothing"
	httpSerialized = "in Serialize"
	httpLooking    = "in Serialize, looks at its context"
	httpDirect     = "POST over loopback"
	httpProxy      = "the same by way of a ReverseProxy"
	httpRouted     = "the same by way of Route"
)

var httpTasks = newLanes("http", openHTTP)

var byOrder = middleware.Key("order", middleware.Query("order"))

// httpNode is one of the two.
type httpNode struct {
	c      *coord.Coordinator
	url    string
	served atomic.Int64
}

// httpRun is all sides of the comparisons.
type httpRun struct {
	*laneRun
	nodes  [2]*httpNode
	client *http.Client
	mine   *http.Request // for a key of the first node
	theirs string        // path and query for one of the second node
}

// openHTTP makes the worker two nodes that serve requests.
func openHTTP(ctx context.Context, h *harness.Host, t httpSizes, lanes *laneRun) error {
	r := httpRun{laneRun: lanes}
	client, count := harness.NewClient(h.Redis, 0)
	r.atEnd(func(context.Context) error { return client.Close() })
	for i := range r.nodes {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		n := &httpNode{url: "http://" + l.Addr().String()}
		r.nodes[i] = n
		opts := rivals.ClusterOptions(h.Order)
		opts.Cluster.Service = n.url
		if n.c, err = rivals.NewCoordinator(client, opts); err != nil {
			return errors.Join(err, l.Close())
		}
		r.atEnd(n.c.Close)
		lanes.nodes = append(lanes.nodes, n.c)
		served := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			n.served.Add(1)
			nothing(w, q)
		})
		route := middleware.Route(n.c, byOrder, &middleware.RouteOptions{Transport: r.transport()})
		r.serve(l, route(middleware.Serialize(n.c, byOrder, nil)(served)))
	}
	base, err := url.Parse(r.nodes[1].url)
	if err != nil {
		return err
	}
	r.client = &http.Client{Transport: r.transport()}
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	r.serve(proxy, &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(base)
			p.SetXForwarded()
			p.Out.Host = p.In.Host
		},
		Transport: r.transport(), FlushInterval: -1, BufferPool: &buffers{},
	})
	if err := r.findKeys(ctx); err != nil {
		return err
	}
	r.blocks, r.counters = t.Blocks, []*harness.Counter{count}
	serialize := middleware.Serialize(r.nodes[0].c, byOrder, nil)
	handler := func(name string, h http.Handler) {
		r.add(&lane{laneResult: laneResult{Name: name, Base: httpBare}, path: coord.PathOwn, batch: t.Calls,
			run: timed(func(_ context.Context, _, n int) error {
				for range n {
					h.ServeHTTP(blank{http.Header{}}, r.mine)
				}
				return nil
			})})
	}
	handler(httpBare, http.HandlerFunc(nothing))
	handler(httpSerialized, serialize(http.HandlerFunc(nothing)))
	handler(httpLooking, serialize(http.HandlerFunc(look)))
	hop := func(name, base string) {
		r.add(&lane{laneResult: laneResult{Name: name, Base: httpProxy}, path: coord.PathOwn, group: "network", calls: t.Posts,
			run: func(ctx context.Context, _, _ int) (span, error) { return r.post(ctx, base+r.theirs) }})
	}
	hop(httpDirect, r.nodes[1].url)
	hop(httpProxy, "http://"+proxy.Addr().String())
	hop(httpRouted, r.nodes[0].url)
	r.done = func(res *lanesResult) { res.Facts["astray"] = float64(r.nodes[0].served.Load()) }
	return nil
}

// findKeys finds keys, and waits until their owners grant them from memory.
func (r *httpRun) findKeys(ctx context.Context) (err error) {
	a, b := r.nodes[0], r.nodes[1]
	for _, n := range r.nodes {
		if err := awaitStats(ctx, n.c, 10*time.Millisecond, func(s coord.Stats) bool {
			return s.Owned > partitions/4 && s.Owned < partitions*3/4 && a.c.Stats().Owned+b.c.Stats().Owned == partitions
		}); err != nil {
			return err
		}
	}
	path := func(own bool) (string, error) {
		keys, err := keysOf(a.c, own, "order/", 1)
		if err != nil {
			return "", err
		}
		return "/?order=" + strings.TrimPrefix(keys[0], "order/"), nil
	}
	if r.theirs, err = path(false); err != nil {
		return err
	}
	mine, err := path(true)
	if err != nil {
		return err
	}
	r.mine, err = http.NewRequestWithContext(ctx, http.MethodPost, a.url+mine, nil)
	return err
}

// serve serves until the task ends.
func (r *httpRun) serve(l net.Listener, h http.Handler) {
	s := &http.Server{Handler: h}
	var work sync.WaitGroup
	work.Go(func() { _ = s.Serve(l) })
	r.atEnd(func(context.Context) error {
		err := s.Close()
		work.Wait()
		return err
	})
}

func (r *httpRun) transport() *middleware.Transport {
	t := middleware.NewTransport()
	r.atEnd(func(context.Context) error {
		t.CloseIdleConnections()
		return nil
	})
	return t
}

func (r *httpRun) post(ctx context.Context, target string) (span, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, target, nil)
	if err != nil {
		return span{}, err
	}
	begin := time.Now()
	res, err := r.client.Do(q)
	if err != nil {
		return span{}, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	if err == nil && res.StatusCode != http.StatusNoContent {
		err = fmt.Errorf("%s: %s", target, res.Status)
	}
	return span{1, time.Since(begin)}, err
}

func nothing(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }

func look(w http.ResponseWriter, r *http.Request) {
	if r.Context().Err() == nil {
		nothing(w, r)
	}
}

// blank is a ResponseWriter that costs nothing.
type blank struct{ h http.Header }

func (b blank) Header() http.Header         { return b.h }
func (b blank) WriteHeader(int)             {}
func (b blank) Write(p []byte) (int, error) { return len(p), nil }

// buffers spare the ReverseProxy the same allocations that Route spares.
type buffers struct{ sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.Pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(p []byte) { b.Pool.Put(&p) }

// measureHTTP lets a process with two nodes of a cluster serve requests.
func measureHTTP(ctx context.Context, b *Run) (report.Result, error) {
	r, err := harness.Alone(ctx, b.Bench, "http", httpTasks, b.Sizes.http)
	if err != nil {
		return report.Result{}, err
	}
	more := func(name string) float64 {
		var d []float64
		for i, x := range r.lane(name).P50 {
			d = append(d, x-r.lane(httpBare).P50[i])
		}
		return stats.Median(d) / 1000
	}
	return report.Result{
		Title: fmt.Sprintf("HTTP: requests whose key is local where they are served; %d blocks, by turns", b.Sizes.http.Blocks),
		Table: append([][]string{besideHead("microseconds", "median")}, r.beside(stats.Micros)...),
		Notes: []string{
			"the first three without a network, mean of each block; the others by one client, p50 of each block; median of the blocks",
			"ratio: to the handler, or to the ReverseProxy, in each block; that one flushes at once and keeps its buffers, as Route does",
			fmt.Sprintf("both nodes, the proxy and the client are one process; GOMAXPROCS is %d", r.Procs),
			"CPU (nanoseconds), allocations, commands and bytes to Redis: of the process, per request, of rounds of one kind only",
			fmt.Sprintf("locks by path: own %s, others %s", figures.Thousands(r.By["own"]), figures.Thousands(r.By["other"])),
		},
		Claims: []report.Claim{
			report.AtMost(httpSerialize, more(httpSerialized), "Serialize, microseconds per request"),
			report.AtMost(httpSerialize, more(httpLooking), "Serialize, the handler looks at its context"),
			report.AtMost(httpRoute, r.lane(httpRouted).times(r.lane(httpProxy)), "Route, times a hop by ReverseProxy"),
			report.AtMost(0, float64(r.By["other"]), "locks that were not from memory"),
			report.AtMost(0, r.Facts["astray"], "requests that Route did not bring to their owner"),
		},
	}, nil
}
