package subjects

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
)

// Each subject, as small as it can be: all of its code runs, what must hold whatever the speed
// holds, and nothing that was measured is nothing.
func TestSubjects(t *testing.T) {
	for name, test := range map[string]struct {
		above0 []string // in claims: what cannot be nothing
		lines  int      // of the table, without its head; 0: see below
		rates  func(*Run) *time.Duration
		also   func(t *testing.T, b *Run, r report.Result)
	}{
		"hot":    {above0: []string{"Redis commands per section"}, lines: 5, rates: func(b *Run) *time.Duration { return &b.Sizes.Hot.Round }},
		"shared": {above0: []string{"of one worker without a lock"}, lines: 9, rates: func(b *Run) *time.Duration { return &b.Sizes.Shared.Round }},
		"zipf":   {lines: 9, rates: func(b *Run) *time.Duration { return &b.Sizes.Zipf.Round }},
		"cold": {lines: 4, also: func(t *testing.T, _ *Run, r report.Result) {
			for _, text := range []string{"commands per Lock", "commands per Unlock"} {
				if c := named(t, r, text); c.Got != 1 {
					t.Errorf("%s: %v", c.Text, c.Got)
				}
			}
			if !strings.Contains(strings.Join(r.Notes, "\n"), "pinned") {
				t.Errorf("it does not say what is pinned: %q", r.Notes)
			}
		}},
		"held": {lines: 10, also: func(t *testing.T, _ *Run, r report.Result) {
			if c := named(t, r, "rows while they are held"); c.Got != 300 {
				t.Errorf("%v rows", c.Got)
			}
			if c := named(t, r, "one read per partition"); c.Got <= 0 || c.Got > 31 {
				t.Errorf("%v reads of 31 partitions in a period", c.Got)
			}
		}},
		"own":     {above0: []string{"Lock and Unlock, times", "hand-over among 64", "SET NX PX and EVALSHA"}, lines: 10},
		"forward": {above0: []string{"median Lock, times", "median Lock and Unlock, times", "callers: times"}, lines: 7},
		"idle":    {above0: []string{"on average"}, lines: 3},
		"http":    {above0: []string{"Serialize, micro", "Serialize, the handler", "Route, times"}, lines: 6},
		"growth": {
			above0: []string{"pair, keys: rise", "held meanwhile: rise", "goroutines: rise", "Lock at Redis", "bytes per key held", "sections per second of 2"},
			also:   growthIsDrawn,
		},
		"modes":   {above0: []string{"Holdfast Semaphore, permits: no limit, sections per second to it, in slices"}, also: allModes},
		"latency": {also: allLanes},
		"stalls":  {lines: 6, also: stallsAreSeen},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := tinyBench(t)
			subject := All[slices.IndexFunc(All, func(s Subject) bool { return s.Name == name })]
			var r report.Result
			var err error
			if test.rates == nil {
				if r, err = subject.Do(t.Context(), b); err != nil {
					t.Fatal(err)
				}
				check(t, r)
			} else {
				r = withRates(t, test.rates(b), func() (report.Result, error) { return subject.Do(t.Context(), b) })
				checkMeasured(t, r)
			}
			if n := len(r.Table) - 1; test.lines != 0 && n != test.lines {
				t.Errorf("%d lines: %q", n, r.Table)
			}
			for _, row := range r.Table {
				if strings.Contains(strings.Join(row, " "), "NaN") {
					t.Errorf("%q", row)
				}
				if _, ok := rivals.PostgresKind.Find(); len(row) > 1 && ok == (row[1] == notRun) && strings.HasPrefix(row[0], rivals.Advisory) {
					t.Errorf("%q", row)
				}
			}
			for _, text := range test.above0 {
				if c := named(t, r, text); !(c.Got > 0) {
					t.Errorf("%s: %v", c.Text, c.Got)
				}
			}
			if test.also != nil {
				test.also(t, b, r)
			}
		})
	}
}

func TestHotSeesTwoHolders(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	b.Sizes.Hot.Goroutines = 8
	r, err := Subject{Measure: func(ctx context.Context, b *Run) (report.Result, error) {
		return measureVariants(ctx, b, rivals.Variants[len(rivals.Variants)-1:])
	}}.Do(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	if c := named(t, r, "two held the lock"); c.Holds {
		t.Error("without a lock no two met")
	}
}

// A run that is interrupted ends soon, and its workers with it.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	b.Sizes.Hot.Round = time.Minute
	b.Sizes.Held.Locks = 200_000
	b.Sizes.stalls.Calm = time.Minute
	for _, s := range []Subject{{Name: "hot", Measure: measureHot}, {Name: "held", Measure: measureHeld}, {Name: "stalls", Measure: measureStalls}} {
		ctx, cancel := context.WithCancel(t.Context())
		stop := time.AfterFunc(2*time.Second, cancel)
		begin := time.Now()
		if _, err := s.Do(ctx, b); err == nil {
			t.Errorf("%s: no error", s.Name)
		}
		if d := time.Since(begin); d > 2*time.Second+2*harness.CloseTime {
			t.Errorf("%s: it took %v", s.Name, d)
		}
		stop.Stop()
		cancel()
	}
}
