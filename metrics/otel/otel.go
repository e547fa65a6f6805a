// Package otel gives OpenTelemetry a coordinator's metrics and spans:
//
//	telemetry, err := holdfastotel.New(nil)
//	locks, err := coord.New(ctx, arbiter, &coord.Options{Trace: telemetry.Trace()})
//	stop, err := telemetry.Register(locks)
//
// docs/metrics.md lists the metrics and spans. It needs OpenTelemetry's API only: the program has
// the SDK.
package otel

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

const scope = "github.com/holdfast-go/holdfast"

// Options are the options of [New]. The zero value is valid, and so is a nil pointer.
type Options struct {
	MeterProvider  metric.MeterProvider // default: the global one
	TracerProvider trace.TracerProvider // default: the global one

	// KeyClass returns the class of a key, an attribute of metrics and spans. A key is never one:
	// there are too many. After 100 classes further ones are "other". Default: the text before the
	// first slash, "" for a key without one.
	KeyClass func(key string) string

	// MinWait is the shortest wait for a lock that gets a span of its own. Default 1 ms; negative:
	// none does.
	MinWait time.Duration

	// EachLock records how long each lock is held, and writes the token of each on the caller's
	// span. By default a lock that did not wait costs nothing more.
	EachLock bool
}

// Telemetry writes metrics and spans. Make it with [New]. It is safe for concurrent use.
type Telemetry struct {
	opts    Options
	tracer  trace.Tracer
	meter   metric.Meter
	classes *telemetry.Classes

	wait, hold, call, flight metric.Float64Histogram
}

// New returns a Telemetry. It does no I/O. opts may be nil. An error is one of the MeterProvider.
func New(opts *Options) (*Telemetry, error) {
	t := &Telemetry{}
	if opts != nil {
		t.opts = *opts
	}
	if t.opts.MeterProvider == nil {
		t.opts.MeterProvider = otel.GetMeterProvider()
	}
	if t.opts.TracerProvider == nil {
		t.opts.TracerProvider = otel.GetTracerProvider()
	}
	if t.opts.MinWait == 0 {
		t.opts.MinWait = time.Millisecond
	}
	t.tracer, t.meter = t.opts.TracerProvider.Tracer(scope), t.opts.MeterProvider.Meter(scope)
	t.classes = telemetry.NewClasses(t.opts.KeyClass)
	for _, h := range []struct {
		to         *metric.Float64Histogram
		name, text string
	}{
		{&t.wait, "holdfast.lock.wait.duration", "How long callers waited for a lock, those that waited."},
		{&t.hold, "holdfast.lock.hold.duration", "How long locks were held, with Options.EachLock."},
		{&t.call, "holdfast.arbiter.call.duration", "How long calls of the arbiter took."},
		{&t.flight, "holdfast.share.flight.duration", "How long flights of Share took."},
	} {
		var err error
		*h.to, err = t.meter.Float64Histogram(h.name, metric.WithUnit("s"), metric.WithDescription(h.text), metric.WithExplicitBucketBoundaries(bounds...))
		if err != nil {
			return nil, fmt.Errorf("otel: %s: %w", h.name, err)
		}
	}
	return t, nil
}

// bounds are those of buckets, in seconds: powers of 4 in nanoseconds, from a microsecond to 18
// minutes.
var bounds = func() (all []float64) {
	for n := 10; n <= 40; n += 2 {
		all = append(all, time.Duration(1<<n).Seconds())
	}
	return all
}()

// Trace returns the Trace for [coord.Options]. Functions of your own can call those in it.
func (t *Telemetry) Trace() *coord.Trace {
	x := &coord.Trace{Waited: t.waited, Flight: t.flew, Lost: t.lost, Call: t.called}
	if t.opts.EachLock {
		x.Granted, x.Released = t.granted, t.released
	}
	return x
}

func (t *Telemetry) waited(ctx context.Context, w coord.WaitInfo) {
	attrs := []attribute.KeyValue{attribute.String("holdfast.key.class", t.classes.Of(w.Key))}
	if w.Err != nil {
		attrs = append(attrs, attribute.String("error.type", telemetry.ErrorType(w.Err)))
	} else {
		attrs = append(attrs, attribute.String("holdfast.path", w.Path.String()))
	}
	t.wait.Record(ctx, w.Waited.Seconds(), metric.WithAttributes(attrs...))
	onSpan := []attribute.KeyValue{attribute.Float64("holdfast.waited", w.Waited.Seconds())}
	if w.Err == nil {
		onSpan = append(onSpan, fence(w.Fence))
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(onSpan...)
	}
	if t.opts.MinWait < 0 || w.Waited < t.opts.MinWait {
		return
	}
	t.span(ctx, "holdfast.lock.wait", w.Waited, w.Err, append(attrs, onSpan...))
}

// span writes a span that has just ended.
func (t *Telemetry) span(ctx context.Context, name string, took time.Duration, err error, attrs []attribute.KeyValue) {
	now := time.Now()
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(now.Add(-took)), trace.WithAttributes(attrs...))
	if err != nil {
		span.SetStatus(codes.Error, telemetry.ErrorType(err))
	}
	span.End(trace.WithTimestamp(now))
}

// fence is text, as spans have no numbers of 64 bits without a sign.
func fence(f coord.Fence) attribute.KeyValue { return attribute.String("holdfast.fence", f.String()) }

func (t *Telemetry) granted(ctx context.Context, g coord.GrantInfo) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(fence(g.Fence), attribute.Float64("holdfast.waited", g.Waited.Seconds()))
	}
}

func (t *Telemetry) released(ctx context.Context, r coord.ReleaseInfo) {
	t.hold.Record(ctx, r.Held.Seconds(), metric.WithAttributes(attribute.String("holdfast.key.class", t.classes.Of(r.Key))))
}

func (t *Telemetry) flew(ctx context.Context, f coord.FlightInfo) {
	attrs := []attribute.KeyValue{
		attribute.String("holdfast.key.class", t.classes.Of(f.Key)), attribute.Bool("holdfast.share.ran", f.Ran), attribute.Bool("holdfast.share.refresh", f.Refresh),
	}
	t.flight.Record(ctx, f.Took.Seconds(), metric.WithAttributes(attrs...))
	if f.Fence > 0 {
		attrs = append(attrs, fence(f.Fence))
	}
	t.span(ctx, "holdfast.share.flight", f.Took, f.Err, attrs)
}

// lost writes a span of its own: the caller's context is not known any more.
func (t *Telemetry) lost(l coord.LossError) {
	t.span(context.Background(), "holdfast.lock.lost", 0, &l, []attribute.KeyValue{
		attribute.String("holdfast.key.class", t.classes.Of(l.Key)), fence(l.Fence), attribute.String("holdfast.cause", l.Cause.String()),
	})
}

func (t *Telemetry) called(c coord.CallInfo) {
	attrs := []attribute.KeyValue{attribute.String("holdfast.operation", c.Op.String())}
	if c.Err != nil {
		attrs = append(attrs, attribute.String("error.type", telemetry.ErrorType(c.Err)))
	}
	t.call.Record(context.Background(), c.Duration.Seconds(), metric.WithAttributes(attrs...))
}

// Replayed is for middleware.IdempotentOptions.Replayed: it writes holdfast.replayed on the
// request's span, and a span holdfast.idempotent.replay below that.
func Replayed(r *http.Request) {
	if span := trace.SpanFromContext(r.Context()); span.IsRecording() {
		span.SetAttributes(attribute.Bool("holdfast.replayed", true))
		_, replay := span.TracerProvider().Tracer(scope).Start(r.Context(), "holdfast.idempotent.replay")
		replay.End()
	}
}

// Register makes a coordinator's counts observable, until stop is called. Each collection takes a
// snapshot ([coord.Coordinator.Stats]), and locks cost nothing more.
func (t *Telemetry) Register(c *coord.Coordinator) (stop func() error, err error) {
	x := &observed{c: c}
	gauges := []struct {
		to               *metric.Int64ObservableUpDownCounter
		name, unit, text string
	}{
		{&x.locks, "holdfast.lock.count", "{lock}", "Keys that are locked or kept, and callers that wait, now."},
		{&x.partitions, "holdfast.partition.count", "{partition}", "Partitions that this node owns."},
		{&x.sessions, "holdfast.session.count", "{session}", "1 while the process has a session, and can lock."},
		{&x.guardians, "holdfast.guardian.count", "{node}", "Nodes that guard this one."},
	}
	counters := []struct {
		to               *metric.Int64ObservableCounter
		name, unit, text string
	}{
		{&x.granted, "holdfast.lock.granted", "{lock}", "Locks granted."},
		{&x.gaveUp, "holdfast.lock.wait.failed", "{caller}", "Callers that waited and went away without the lock."},
		{&x.lost, "holdfast.lock.lost", "{lock}", "Locks lost while they were held."},
		{&x.begun, "holdfast.session.begun", "{session}", "Sessions begun. After each but the first all locks were lost."},
	}
	var all []metric.Observable
	for _, g := range gauges {
		if *g.to, err = t.meter.Int64ObservableUpDownCounter(g.name, metric.WithUnit(g.unit), metric.WithDescription(g.text)); err != nil {
			return nil, fmt.Errorf("otel: %s: %w", g.name, err)
		}
		all = append(all, *g.to)
	}
	for _, n := range counters {
		if *n.to, err = t.meter.Int64ObservableCounter(n.name, metric.WithUnit(n.unit), metric.WithDescription(n.text)); err != nil {
			return nil, fmt.Errorf("otel: %s: %w", n.name, err)
		}
		all = append(all, *n.to)
	}
	for _, g := range []struct {
		to         *metric.Float64ObservableGauge
		name, text string
	}{
		{&x.grace, "holdfast.grace.remaining", "For how long the arbiter grants nothing new, 0 as a rule."},
		{&x.longest, "holdfast.lock.wait.longest", "How long the caller has waited that waits for longest, now."},
		{&x.held, "holdfast.lock.hold.longest", "How long the lock is held that is held for longest, of those that others were seen to want since."},
	} {
		if *g.to, err = t.meter.Float64ObservableGauge(g.name, metric.WithUnit("s"), metric.WithDescription(g.text)); err != nil {
			return nil, fmt.Errorf("otel: %s: %w", g.name, err)
		}
		all = append(all, *g.to)
	}
	r, err := t.meter.RegisterCallback(x.collect, all...)
	if err != nil {
		return nil, fmt.Errorf("otel: %w", err)
	}
	return r.Unregister, nil
}

// observed is a coordinator whose counts are collected.
type observed struct {
	c *coord.Coordinator

	locks, partitions, sessions, guardians metric.Int64ObservableUpDownCounter
	granted, lost, begun, gaveUp           metric.Int64ObservableCounter
	grace, longest, held                   metric.Float64ObservableGauge
}

func (x *observed) collect(_ context.Context, o metric.Observer) error {
	s := x.c.Stats()
	for state, n := range map[string]int{"held": s.Locked, "kept": s.Kept, "waiting": s.Waiting} {
		o.ObserveInt64(x.locks, int64(n), metric.WithAttributes(attribute.String("holdfast.state", state)))
	}
	o.ObserveFloat64(x.longest, s.LongestWait.Seconds())
	o.ObserveFloat64(x.held, s.LongestHold.Seconds())
	for _, reason := range []string{"locked", "unavailable", "canceled"} {
		o.ObserveInt64(x.gaveUp, int64(s.GaveUp[reason]), metric.WithAttributes(attribute.String("error.type", reason)))
	}
	o.ObserveInt64(x.partitions, int64(s.Owned))
	o.ObserveInt64(x.guardians, int64(s.Guardians))
	up := int64(0)
	if s.Session != "" {
		up = 1
	}
	o.ObserveInt64(x.sessions, up)
	o.ObserveInt64(x.begun, int64(s.Sessions))
	for _, p := range []coord.Path{coord.PathTurn, coord.PathOwn, coord.PathForwarded, coord.PathArbiter} {
		o.ObserveInt64(x.granted, int64(s.Granted[p]), metric.WithAttributes(attribute.String("holdfast.path", p.String())))
	}
	for cause := coord.SessionExpired; cause <= coord.Broken; cause++ {
		o.ObserveInt64(x.lost, int64(s.Lost[cause]), metric.WithAttributes(attribute.String("holdfast.cause", cause.String())))
	}
	o.ObserveFloat64(x.grace, s.Grace.Seconds())
	return nil
}
