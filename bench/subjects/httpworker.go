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
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/middleware"
)

var httpTasks = harness.NewTask("http", runHTTP)

// httpTask tells a worker to be two nodes that serve requests.
type httpTask struct {
	Blocks int `json:"blocks"`
	Calls  int `json:"calls"`
	Posts  int `json:"posts"`
}

// httpResult is what the worker found: nanoseconds, by block.
type httpResult struct {
	Bare, Serialized, Looking []float64
	Direct, Proxy, Route      []float64
	Used                      [6][]stats.Effort // of these, in their order
	Procs                     int
	Own, Other                int64 // locks, by path
	Astray                    int64 // requests by Route that were not served by the owner
}

var byOrder = middleware.Key("order", middleware.Query("order"))

// httpNode is one of the two.
type httpNode struct {
	c      *coord.Coordinator
	url    string
	served atomic.Int64
}

// httpRun is all sides of the comparisons.
type httpRun struct {
	closers []func() error // the last one first
	nodes   [2]*httpNode
	proxy   string // base URL of a ReverseProxy to the second node
	client  *http.Client
	count   *harness.Counter // of both coordinators' client
	mine    *http.Request    // for a key of the first node
	theirs  string           // path and query for one of the second node
}

func runHTTP(ctx context.Context, h *harness.Host, t httpTask) (_ *httpResult, err error) {
	var r httpRun
	defer func() {
		for i := len(r.closers) - 1; i >= 0; i-- {
			err = errors.Join(err, r.closers[i]())
		}
	}()
	if err := r.start(ctx, h); err != nil {
		return nil, err
	}
	res := httpResult{Procs: runtime.GOMAXPROCS(0)}
	serialize := middleware.Serialize(r.nodes[0].c, byOrder, nil)
	handlers := []struct {
		to *[]float64
		h  http.Handler
	}{
		{&res.Bare, http.HandlerFunc(nothing)}, {&res.Serialized, serialize(http.HandlerFunc(nothing))},
		{&res.Looking, serialize(http.HandlerFunc(look))},
	}
	hops := []struct {
		to   *[]float64
		base string
	}{{&res.Direct, r.nodes[1].url}, {&res.Proxy, r.proxy}, {&res.Route, r.nodes[0].url}}

	before := [2]coord.Stats{r.nodes[0].c.Stats(), r.nodes[1].c.Stats()}
	for block := range t.Blocks + 1 {
		h.At(block, t.Blocks+1)
		for i := range handlers {
			i = (i + block) % len(handlers)
			x, meter, begin := &handlers[i], harness.NewMeter(r.count), time.Now()
			for range t.Calls {
				x.h.ServeHTTP(blank{http.Header{}}, r.mine)
			}
			took := time.Since(begin)
			if block > 0 { // pools
				*x.to = append(*x.to, float64(took)/float64(t.Calls))
				res.Used[i] = append(res.Used[i], meter.Read(int64(t.Calls)))
			}
		}
		samples := make([][]time.Duration, len(hops))
		for i := range t.Posts {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			for _, what := range perms[i%len(perms)] {
				took, err := r.post(ctx, hops[what].base+r.theirs)
				if err != nil {
					return nil, err
				}
				samples[what] = append(samples[what], took)
			}
		}
		for i := range hops {
			meter := harness.NewMeter(r.count) // of one kind in a row
			for range t.Posts / 4 {
				if _, err := r.post(ctx, hops[i].base+r.theirs); err != nil {
					return nil, err
				}
			}
			if block > 0 { // connections
				*hops[i].to = append(*hops[i].to, stats.Median(samples[i]))
				res.Used[3+i] = append(res.Used[3+i], meter.Read(int64(t.Posts/4)))
			}
		}
	}
	for i, n := range r.nodes {
		own, other := byPath(n.c, before[i], coord.PathOwn)
		res.Own, res.Other = res.Own+own, res.Other+other
	}
	res.Astray = r.nodes[0].served.Load()
	return &res, nil
}

// start makes the two nodes, and the proxy.
func (r *httpRun) start(ctx context.Context, h *harness.Host) error {
	client, count := harness.NewClient(h.Redis, 0)
	r.count = count
	r.closers = append(r.closers, client.Close)
	var muxes [2]atomic.Pointer[http.Handler]
	for i := range r.nodes {
		n := &httpNode{}
		r.nodes[i] = n
		var err error
		n.url, err = r.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*muxes[i].Load()).ServeHTTP(w, r) }))
		if err != nil {
			return err
		}
		opts := rivals.ClusterOptions(h.Order)
		opts.Cluster.Service = n.url
		if n.c, err = rivals.NewCoordinator(client, opts); err != nil {
			return err
		}
		r.closers = append(r.closers, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), harness.CloseTime)
			defer cancel()
			return n.c.Close(ctx)
		})
		h := middleware.Route(n.c, byOrder, &middleware.RouteOptions{Transport: r.transport()})(
			middleware.Serialize(n.c, byOrder, nil)(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				n.served.Add(1)
				nothing(w, q)
			})))
		muxes[i].Store(&h)
	}
	base, err := url.Parse(r.nodes[1].url)
	if err != nil {
		return err
	}
	r.client = &http.Client{Transport: r.transport()}
	r.proxy, err = r.serve(&httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(base)
			p.SetXForwarded()
			p.Out.Host = p.In.Host
		},
		Transport: r.transport(), FlushInterval: -1, BufferPool: &buffers{},
	})
	if err != nil {
		return err
	}
	return r.settle(ctx)
}

// settle finds keys, and waits until their owners grant them from memory.
func (r *httpRun) settle(ctx context.Context) error {
	a, b := r.nodes[0], r.nodes[1]
	for _, n := range r.nodes {
		if err := awaitStats(ctx, n.c, 10*time.Millisecond, func(s coord.Stats) bool {
			return s.Owned > partitions/4 && s.Owned < partitions*3/4 && a.c.Stats().Owned+b.c.Stats().Owned == partitions
		}); err != nil {
			return err
		}
	}
	for i := 0; r.mine == nil || r.theirs == ""; i++ {
		path := fmt.Sprint("/?order=", i)
		n, _ := a.c.Owner(fmt.Sprint("order/", i))
		switch n.Service {
		case a.url:
			q, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+path, nil)
			if err != nil {
				return err
			}
			r.mine = q
		case b.url:
			r.theirs = path
		default:
			return fmt.Errorf("order/%d has no owner", i)
		}
	}
	return nil
}

// serve starts a server, and returns its base URL.
func (r *httpRun) serve(h http.Handler) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s := &http.Server{Handler: h}
	var work sync.WaitGroup
	work.Go(func() { _ = s.Serve(l) })
	r.closers = append(r.closers, func() error {
		err := s.Close()
		work.Wait()
		return err
	})
	return "http://" + l.Addr().String(), nil
}

func (r *httpRun) transport() *middleware.Transport {
	t := middleware.NewTransport()
	r.closers = append(r.closers, func() error {
		t.CloseIdleConnections()
		return nil
	})
	return t
}

func (r *httpRun) post(ctx context.Context, target string) (time.Duration, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, target, nil)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	res, err := r.client.Do(q)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	if err == nil && res.StatusCode != http.StatusNoContent {
		err = fmt.Errorf("%s: %s", target, res.Status)
	}
	return time.Since(begin), err
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

// buffers spare the ReverseProxy what Route spares.
type buffers struct{ sync.Pool }

func (b *buffers) Get() []byte {
	if p, ok := b.Pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(p []byte) { b.Pool.Put(&p) }
