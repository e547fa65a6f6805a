package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	holdfastotel "github.com/holdfast-go/holdfast/metrics/otel"
	holdfastprometheus "github.com/holdfast-go/holdfast/metrics/prometheus"
)

// A variant is a node that owns all keys, with metrics or without.
type variant struct {
	name    string
	metrics bool // that must cost an owner next to nothing
	c       *coord.Coordinator
	scrape  func(context.Context) error // nil: there is nothing to scrape
	done    []func()
}

// A maker makes a variant.
type maker struct {
	name    string
	metrics bool
	with    func(v *variant, o *coord.Options) (started func() error, err error) // sets options; started is for when there is a node
}

var makers = []maker{
	{"without", false, nil},
	{"without, once more", false, nil}, // how much of the next rows is noise
	{"metrics/prometheus", true, withPrometheus},
	{"metrics/otel, metrics and spans", true, func(v *variant, o *coord.Options) (func() error, error) {
		return withOTel(v, o, &holdfastotel.Options{})
	}},
	{"the same with EachLock", false, func(v *variant, o *coord.Options) (func() error, error) {
		return withOTel(v, o, &holdfastotel.Options{EachLock: true})
	}},
}

// open starts a node of each variant, with options of its users but for the arbiter, which is in
// memory.
func open() (all []*variant, done func(), err error) {
	done = func() {
		for _, v := range all {
			v.close()
		}
	}
	for _, m := range makers {
		v := &variant{name: m.name, metrics: m.metrics}
		all = append(all, v)
		if err := v.start(m.with, &coord.Options{}); err != nil {
			done()
			return nil, nil, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return all, done, nil
}

// start starts the node, and waits until it owns all keys.
func (v *variant) start(with func(*variant, *coord.Options) (func() error, error), o *coord.Options) (err error) {
	o.Cluster = &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0", Debounce: 100 * time.Millisecond}
	started := func() error { return nil }
	if with != nil {
		if started, err = with(v, o); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if v.c, err = coord.New(ctx, fallback.NewMemory(), o); err != nil {
		return err
	}
	return errors.Join(v.c.Settled(ctx, 1), started())
}

func (v *variant) close() {
	for _, f := range v.done {
		f()
	}
	if v.c != nil {
		_ = v.c.Close(context.Background())
	}
}

// withPrometheus is the set-up that docs/metrics.md recommends, behind a server.
func withPrometheus(v *variant, o *coord.Options) (func() error, error) {
	r, waits := prometheus.NewRegistry(), holdfastprometheus.NewWaits(nil)
	if err := r.Register(waits); err != nil {
		return nil, err
	}
	o.Trace = &coord.Trace{Waited: waits.Observe}
	return func() error {
		s := httptest.NewServer(promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
		v.done = append(v.done, s.Close)
		v.scrape = func(ctx context.Context) error { return fetch(ctx, s.Client(), s.URL) }
		return r.Register(holdfastprometheus.NewCollector(v.c, nil))
	}, nil
}

// fetch reads a page to its end.
func fetch(ctx context.Context, c *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	a, err := c.Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	n, err := io.Copy(io.Discard, a.Body)
	if err == nil && (a.StatusCode != http.StatusOK || n == 0) {
		err = fmt.Errorf("%s, %d bytes", a.Status, n)
	}
	return err
}

// withOTel is the same with OpenTelemetry's SDK: it keeps metrics until they are collected, and
// drops spans once they have been written.
func withOTel(v *variant, o *coord.Options, opts *holdfastotel.Options) (func() error, error) {
	reader := metric.NewManualReader()
	opts.MeterProvider = metric.NewMeterProvider(metric.WithReader(reader))
	opts.TracerProvider = trace.NewTracerProvider(trace.WithSyncer(nowhere{}))
	x, err := holdfastotel.New(opts)
	if err != nil {
		return nil, err
	}
	o.Trace = x.Trace()
	return func() error {
		stop, err := x.Register(v.c)
		if err != nil {
			return err
		}
		v.done = append(v.done, func() { _ = stop() })
		v.scrape = func(ctx context.Context) error {
			var all metricdata.ResourceMetrics
			return reader.Collect(ctx, &all)
		}
		return nil
	}, nil
}

// nowhere is where spans go.
type nowhere struct{}

func (nowhere) ExportSpans(context.Context, []trace.ReadOnlySpan) error { return nil }
func (nowhere) Shutdown(context.Context) error                          { return nil }

// A work is a measured operation.
type work struct {
	name  string
	owner bool // it is an owner's path, without waits
	run   func(v *variant, n int) error
}

// contenders is how many goroutines want the same key.
const contenders = 16

var works = []work{
	{"Lock and Unlock of an owner's key", true, func(v *variant, n int) error {
		for range n {
			if err := v.pair("order/4711"); err != nil {
				return err
			}
		}
		return nil
	}},
	{"the same of 1,000 keys in turn", true, func(v *variant, n int) error {
		for i := range n {
			if err := v.pair(keys[i%len(keys)]); err != nil {
				return err
			}
		}
		return nil
	}},
	{fmt.Sprintf("hand-over of an owner's key among %d goroutines, each of which waits", contenders), false, func(v *variant, n int) error {
		var work sync.WaitGroup
		var left atomic.Int64
		left.Store(int64(n))
		errs := make([]error, contenders)
		for i := range contenders {
			work.Go(func() {
				for errs[i] == nil && left.Add(-1) >= 0 {
					errs[i] = v.pair("order/hot")
				}
			})
		}
		work.Wait()
		return errors.Join(errs...)
	}},
}

var keys = func() (all []string) {
	for i := range 1000 {
		all = append(all, "order/"+strconv.Itoa(i))
	}
	return all
}()

// pair locks and unlocks a key.
func (v *variant) pair(key string) error {
	l, err := v.c.Lock(context.Background(), key)
	if err != nil {
		return err
	}
	return l.Unlock()
}
