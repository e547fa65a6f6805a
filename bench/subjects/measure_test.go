package subjects

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
)

func TestHot(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	r := withRates(t, &b.Sizes.Hot.Round, func() (report.Result, error) { return measureHot(t.Context(), b) })
	if len(r.Table) != 6 || !strings.HasPrefix(r.Table[1][0], "Holdfast") {
		t.Errorf("%q", r.Table)
	}
	checkMeasured(t, r)
	if c := named(t, r, "Redis commands per section"); !(c.Got > 0) {
		t.Errorf("%v commands per section", c.Got)
	}
}

func TestHotSeesTwoHolders(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	b.Sizes.Hot.Goroutines = 8
	r, err := measureVariants(t.Context(), b, rivals.Variants[len(rivals.Variants)-1:])
	if err != nil {
		t.Fatal(err)
	}
	if c := named(t, r, "two held the lock"); c.Holds() {
		t.Error("without a lock, nobody met anybody")
	}
}

func TestCold(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	r, err := measureCold(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	check(t, r)
	for _, text := range []string{"commands per Lock", "commands per Unlock"} {
		if c := named(t, r, text); c.Got != 1 {
			t.Errorf("%s: %v", c.Text, c.Got)
		}
	}
	if !strings.Contains(strings.Join(r.Notes, "\n"), "pinned") {
		t.Errorf("it does not say what is pinned: %q", r.Notes)
	}
}

func TestHeld(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	r, err := measureHeld(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	check(t, r)
	if c := named(t, r, "rows while they are held"); c.Got != 300 {
		t.Errorf("%v rows", c.Got)
	}
	if c := named(t, r, "one read per partition"); c.Got <= 0 || c.Got > 31 {
		t.Errorf("%v reads of 31 partitions in a period", c.Got)
	}
}

// A run that is interrupted ends soon, and its workers with it.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	b.Sizes.Hot.Round = time.Minute
	b.Sizes.Held.Locks = 200_000
	b.Sizes.stalls.Calm = time.Minute
	for _, s := range []Subject{{"hot", measureHot}, {"held", measureHeld}, {"stalls", measureStalls}} {
		ctx, cancel := context.WithCancel(t.Context())
		stop := time.AfterFunc(2*time.Second, cancel)
		begin := time.Now()
		if _, err := s.Measure(ctx, b); err == nil {
			t.Errorf("%s: no error", s.Name)
		}
		if d := time.Since(begin); d > 2*time.Second+2*harness.CloseTime {
			t.Errorf("%s: it took %v", s.Name, d)
		}
		stop.Stop()
		cancel()
	}
}
