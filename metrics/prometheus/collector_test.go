package prometheus_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/metrics/prometheus"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(asNode); name != "" {
		if err := serveNode(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func open(t *testing.T) *coord.Coordinator {
	t.Helper()
	c, err := coord.New(t.Context(), fallback.NewMemory(), &coord.Options{Name: "anna"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func TestCollector(t *testing.T) {
	c := open(t)
	x := prometheus.NewCollector(c, &prometheus.Options{Labels: client.Labels{"namespace": "shop"}})
	r := client.NewPedanticRegistry()
	if err := r.Register(x); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		l, err := c.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	held, err := c.Lock(t.Context(), "held")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.Lock(ctx, "held"); err == nil {
		t.Fatal("a lock that is held was granted")
	}
	if err := c.Break(t.Context(), "held", held.Fence(), "test"); err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(r)
	if err != nil {
		t.Error(err)
	}
	for _, p := range problems {
		if !strings.Contains(p.Text, `should not have "_count" suffix`) { // OpenTelemetry's counts of things have it
			t.Errorf("%+v", p)
		}
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			namespaced := false
			for _, l := range m.GetLabel() {
				if l.GetName() == "namespace" {
					namespaced = l.GetValue() == "shop"
				} else {
					name += " " + l.GetValue()
				}
			}
			if !namespaced {
				t.Errorf("%s lacks the label", name)
			}
			switch {
			case m.GetHistogram() != nil:
				h := m.GetHistogram()
				got[name] = float64(h.GetSampleCount())
				last := uint64(0)
				for _, b := range h.GetBucket() {
					if b.GetCumulativeCount() < last {
						t.Errorf("%s: its buckets fall", name)
					}
					last = b.GetCumulativeCount()
				}
				if last != h.GetSampleCount() {
					t.Errorf("%s: %d of %d are in buckets", name, last, h.GetSampleCount())
				}
			case m.GetCounter() != nil:
				got[name] = m.GetCounter().GetValue()
			default:
				got[name] = m.GetGauge().GetValue()
			}
		}
	}
	for name, want := range map[string]float64{
		"holdfast_lock_lost_total broken": 1, "holdfast_lock_lost_total session expired": 0,
		"holdfast_session_total": 1, "holdfast_session_count": 1, "holdfast_arbiter_call_total open": 1, "holdfast_partition_count": 0,
		"holdfast_grace_remaining_seconds": 0, "holdfast_lock_count held": 0, "holdfast_node_count unlinked": 0, "holdfast_node_count refused": 0,
		"holdfast_node_count missing": 0, "holdfast_node_count unlisted": 0,
		"holdfast_arbiter_call_duration_seconds  open": 1, "holdfast_arbiter_call_failed_total open full": 0, "holdfast_lock_longest_wait_seconds": 0,
		"holdfast_lock_longest_wanted_hold_seconds": 0, "holdfast_lock_wait_failed_total locked": 1, "holdfast_lock_wait_failed_total canceled": 0,
		"holdfast_lock_wait_failed_total unavailable": 0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v, want %v, of %v", name, v, want, got)
		}
	}
	if n := got["holdfast_lock_hold_duration_seconds"]; n < 1 || n > 3 { // of a warm key it is a sample; the first hold is in it
		t.Errorf("%v of 3 holds", n)
	}
	if got["holdfast_arbiter_call_duration_seconds  lock"] < 1 { // error is empty
		t.Errorf("%v", got)
	}
}

// notShown are metrics that the dashboard has no panel of.
var notShown = map[string]bool{
	"holdfast_arbiter_call_total":       true, // the histogram's panels are of the same calls
	"holdfast_guardian_promise_seconds": true, // how many guard a node tells more
	"holdfast_takeover_seconds":         true, // a setting, for an alert
}

// Each name in alerts, dashboard and documents is collected, and each collected one is documented,
// and shown.
func TestNames(t *testing.T) {
	descriptions := make(chan *client.Desc, 100)
	prometheus.NewCollector(open(t), nil).Describe(descriptions)
	prometheus.NewWaits(nil).Describe(descriptions)
	close(descriptions)
	var names []string
	for d := range descriptions {
		_, rest, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ := strings.Cut(rest, `"`)
		names = append(names, name)
	}
	if len(names) < 10 {
		t.Fatalf("%v", names)
	}
	for _, file := range []string{"alerts.yml", "dashboard.json", "../../docs/metrics.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		words := strings.FieldsFunc(string(text), func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') })
		for _, w := range words {
			base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(w, "_bucket"), "_count"), "_sum")
			known := false
			for _, name := range names {
				known = known || w == name || base == name
			}
			if strings.HasPrefix(w, "holdfast_") && !known {
				t.Errorf("%s names %s, which is not collected", file, w)
			}
		}
		for _, name := range names {
			if strings.HasSuffix(file, ".md") && !strings.Contains(string(text), "`"+name+"`") {
				t.Errorf("%s lacks %s", file, name)
			}
			if strings.HasSuffix(file, ".json") && !notShown[name] && !slices.ContainsFunc(words, func(w string) bool {
				return w == name || w == name+"_bucket" || w == name+"_count"
			}) {
				t.Errorf("%s has no panel of %s", file, name)
			}
		}
	}
}

// Prometheus's own tool finds the rules in order, and each alert fires when it should.
func TestAlerts(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: apt install prometheus")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "testdata/alerts_test.yml"}} {
		if out, err := exec.CommandContext(ctx, tool, args...).CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}
