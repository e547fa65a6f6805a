package prometheus_test

import (
	"context"
	"errors"
	"testing"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/metrics/prometheus"
)

type traceID struct{}

// Waits count by class, never by key, whether the lock came or not, with the trace of the caller as
// an exemplar.
func TestWaits(t *testing.T) {
	waits := prometheus.NewWaits(&prometheus.WaitOptions{
		Labels: client.Labels{"namespace": "shop"},
		Exemplar: func(ctx context.Context) client.Labels {
			if id, ok := ctx.Value(traceID{}).(string); ok {
				return client.Labels{"trace_id": id}
			}
			return nil
		},
	})
	r := client.NewPedanticRegistry()
	if err := r.Register(waits); err != nil {
		t.Fatal(err)
	}
	c, err := coord.New(t.Context(), fallback.NewMemory(), &coord.Options{Trace: &coord.Trace{Waited: waits.Observe}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	l, err := c.Lock(t.Context(), "order/1")
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 2)
	for _, ctx := range []context.Context{context.WithValue(t.Context(), traceID{}, "4bf92f"), gone} {
		go func() { errs <- c.Do(ctx, "order/1", func(context.Context, coord.Lock) error { return nil }) }()
	}
	await.Until(t, "both wait", func() bool { return c.Stats().Waiting == 2 })
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
	if err := <-errs; err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(waits); n != 3 {
		t.Errorf("%d series", n)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	exemplars := 0
	ways := make(map[string]bool)
	for _, m := range families[0].GetMetric() {
		labels := make(map[string]string)
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["class"] != "order" {
			t.Errorf("class %q", labels["class"])
		}
		ways[labels["path"]+"|"+labels["error"]] = true
		if m.GetHistogram().GetSampleCount() != 1 || m.GetHistogram().GetSampleSum() <= 0 {
			t.Errorf("%v", m)
		}
		for _, b := range m.GetHistogram().GetBucket() {
			if x := b.GetExemplar(); x != nil {
				exemplars++
				if x.GetLabel()[0].GetValue() != "4bf92f" {
					t.Errorf("%v", x)
				}
			}
		}
	}
	for _, way := range []string{"arbiter|", "turn|", "|locked"} { // the first caller has waited for the arbiter
		if !ways[way] {
			t.Errorf("no series with path and error %q: %v", way, ways)
		}
	}
	if exemplars != 1 {
		t.Errorf("%d exemplars", exemplars)
	}
}
