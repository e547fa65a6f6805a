package otel_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/metrics/otel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a coordinator with all of OpenTelemetry in memory.
type world struct {
	*coord.Coordinator
	t      *testing.T
	reader *metric.ManualReader
	spans  *tracetest.SpanRecorder
	traces *trace.TracerProvider
}

func open(t *testing.T, o otel.Options) *world {
	t.Helper()
	w := &world{t: t, reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	w.traces = trace.NewTracerProvider(trace.WithSpanProcessor(w.spans))
	o.MeterProvider, o.TracerProvider = metric.NewMeterProvider(metric.WithReader(w.reader)), w.traces
	x, err := otel.New(&o)
	if err != nil {
		t.Fatal(err)
	}
	if w.Coordinator, err = coord.New(t.Context(), fallback.NewMemory(), &coord.Options{Trace: x.Trace()}); err != nil {
		t.Fatal(err)
	}
	stop, err := x.Register(w.Coordinator)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
		_ = w.Close(context.Background())
	})
	return w
}

// handOver makes a caller with a span wait for a key until another one has unlocked it.
func (w *world) handOver(key string) {
	w.t.Helper()
	l, err := w.Lock(w.t.Context(), key)
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		ctx, span := w.traces.Tracer("user").Start(w.t.Context(), "request")
		defer span.End()
		done <- w.Do(ctx, key, func(context.Context, coord.Lock) error { return nil })
	}()
	await.Until(w.t, "it waits", func() bool { return w.Stats().Waiting == 1 })
	time.Sleep(2 * time.Millisecond) // the test needs a long wait
	if err := errors.Join(l.Unlock(), <-done); err != nil {
		w.t.Fatal(err)
	}
}

// span returns the one ended span of a name, as soon as it is there.
func (w *world) span(name string) trace.ReadOnlySpan {
	w.t.Helper()
	var found trace.ReadOnlySpan
	await.Until(w.t, "a span "+name, func() bool {
		for _, s := range w.spans.Ended() {
			if s.Name() == name {
				found = s
			}
		}
		return found != nil
	})
	return found
}

func attr(all []attribute.KeyValue, name string) string {
	for _, a := range all {
		if string(a.Key) == name {
			return a.Value.String()
		}
	}
	return ""
}

// A wait has a span below that of the caller, which tells the token and how long it took. The
// histogram has the span as an exemplar.
func TestSpanOfAWait(t *testing.T) {
	w := open(t, otel.Options{})
	w.handOver("order/8123")
	wait, request := w.span("holdfast.lock.wait"), w.span("request")
	if wait.Parent().SpanID() != request.SpanContext().SpanID() || wait.EndTime().Sub(wait.StartTime()) < 2*time.Millisecond {
		t.Errorf("%+v", wait)
	}
	if a := wait.Attributes(); attr(a, "holdfast.key.class") != "order" || attr(a, "holdfast.path") != "turn" {
		t.Errorf("%v", a)
	}
	if a := request.Attributes(); attr(a, "holdfast.fence") == "" || attr(a, "holdfast.waited") == "" {
		t.Errorf("the user's span: %v", a)
	}
	for _, s := range w.spans.Ended() {
		for _, a := range s.Attributes() {
			if a.Value.String() == "order/8123" {
				t.Error("the key is an attribute")
			}
		}
	}
	h := data[metricdata.Histogram[float64]](w, "holdfast.lock.wait.duration")
	for _, p := range h.DataPoints {
		if path, _ := p.Attributes.Value("holdfast.path"); path.AsString() != "turn" {
			continue // the first caller waited for the arbiter
		}
		if p.Count != 1 || p.Sum < 0.002 {
			t.Errorf("%+v", p)
		}
		if x := p.Exemplars; len(x) != 1 || string(x[0].SpanID) != idOf(request) {
			t.Errorf("exemplars: %+v", x)
		}
		return
	}
	t.Errorf("%+v", h)
}

func idOf(s trace.ReadOnlySpan) string { id := s.SpanContext().SpanID(); return string(id[:]) }

// data returns the data collected under a name.
func data[T metricdata.Aggregation](w *world, name string) (found T) {
	w.t.Helper()
	var all metricdata.ResourceMetrics
	if err := w.reader.Collect(w.t.Context(), &all); err != nil {
		w.t.Fatal(err)
	}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			if m.Name == name {
				d, ok := m.Data.(T)
				if !ok {
					w.t.Fatalf("%s is a %T", name, m.Data)
				}
				return d
			}
		}
	}
	w.t.Errorf("there is no %s", name)
	return found
}

// A wait that fails, a lock that is lost, a flight: each has a span that says why.
func TestOtherSpans(t *testing.T) {
	w := open(t, otel.Options{EachLock: true})
	l, err := w.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := w.Lock(ctx, "k")
		done <- err
	}()
	await.Until(t, "it waits", func() bool { return w.Stats().Waiting == 1 })
	time.Sleep(2 * time.Millisecond)
	cancel()
	<-done
	if s := w.span("holdfast.lock.wait"); s.Status().Code != codes.Error || attr(s.Attributes(), "error.type") != "locked" {
		t.Errorf("%+v %v", s.Status(), s.Attributes())
	}
	if err := w.Break(t.Context(), "k", l.Fence(), "test"); err != nil {
		t.Fatal(err)
	}
	if s := w.span("holdfast.lock.lost"); attr(s.Attributes(), "holdfast.cause") != "broken" || attr(s.Attributes(), "holdfast.fence") != l.Fence().String() {
		t.Errorf("%v", s.Attributes())
	}
	ctx, parent := w.traces.Tracer("user").Start(t.Context(), "request")
	if _, err := coord.Share(ctx, w.Coordinator, "report/1", &coord.ShareOptions[int]{}, func(context.Context, coord.Fence) (int, error) { return 7, nil }); err != nil {
		t.Fatal(err)
	}
	parent.End()
	s := w.span("holdfast.share.flight")
	if a := s.Attributes(); s.Parent().SpanID() != parent.SpanContext().SpanID() || attr(a, "holdfast.share.ran") != "true" || attr(a, "holdfast.key.class") != "report" {
		t.Errorf("%v", s.Attributes())
	}
	if h := data[metricdata.Histogram[float64]](w, "holdfast.lock.hold.duration"); len(h.DataPoints) == 0 {
		t.Error("holds are not recorded")
	}
	if n := data[metricdata.Sum[int64]](w, "holdfast.lock.lost"); len(n.DataPoints) == 0 {
		t.Error("losses are not counted")
	}
	if n := data[metricdata.Sum[int64]](w, "holdfast.session.count"); len(n.DataPoints) != 1 || n.DataPoints[0].Value != 1 {
		t.Errorf("%+v", n)
	}
	if h := data[metricdata.Histogram[float64]](w, "holdfast.arbiter.call.duration"); len(h.DataPoints) == 0 {
		t.Error("calls are not recorded")
	}
	_ = data[metricdata.Gauge[float64]](w, "holdfast.grace.remaining")
	_ = data[metricdata.Gauge[float64]](w, "holdfast.lock.wait.longest")
}

// A run in the background, for a result that is about to expire, has a span below that of the
// caller that has caused it.
func TestSpanOfARefresh(t *testing.T) {
	w := open(t, otel.Options{})
	opts := &coord.ShareOptions[int]{TTL: time.Hour, RefreshAhead: time.Hour - 1} // nearly each caller causes one
	ids := make(map[string]bool)
	refresh := func() (found trace.ReadOnlySpan) {
		for _, s := range w.spans.Ended() {
			if s.Name() == "holdfast.share.flight" && attr(s.Attributes(), "holdfast.share.refresh") == "true" {
				found = s
			}
		}
		return found
	}
	await.Until(t, "a result is refreshed early", func() bool {
		ctx, span := w.traces.Tracer("user").Start(t.Context(), "request")
		defer span.End()
		id := span.SpanContext().SpanID()
		ids[string(id[:])] = true
		if _, err := coord.Share(ctx, w.Coordinator, "report/1", opts, func(context.Context, coord.Fence) (int, error) { return 7, nil }); err != nil {
			t.Fatal(err)
		}
		return refresh() != nil
	})
	s := refresh()
	if parent := s.Parent().SpanID(); !ids[string(parent[:])] || attr(s.Attributes(), "holdfast.share.ran") != "true" {
		t.Errorf("below %v: %v", parent, s.Attributes())
	}
}

func TestReplayed(t *testing.T) {
	w := open(t, otel.Options{})
	ctx, span := w.traces.Tracer("user").Start(t.Context(), "request")
	otel.Replayed(httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil))
	span.End()
	request := w.span("request")
	if a := request.Attributes(); attr(a, "holdfast.replayed") != "true" {
		t.Errorf("%v", a)
	}
	if s := w.span("holdfast.idempotent.replay"); s.Parent().SpanID() != request.SpanContext().SpanID() {
		t.Errorf("%+v", s)
	}
	otel.Replayed(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)) // without a span
	if all := w.spans.Ended(); len(all) != 2 {
		t.Errorf("%v", all)
	}
}
