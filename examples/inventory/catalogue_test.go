package main

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestCatalogue(t *testing.T) {
	code, stdout, stderr := sell(t, t.Context(), "-catalogue -duration 1s -processes 2 -goroutines 8 -skus 1 -reads 100")
	if code != 0 || stderr != "" {
		t.Errorf("exit status %d, stderr %q", code, stderr)
	}
	var rates []float64
	for _, title := range []string{"a lock for each look-up", "a read lock"} {
		cells := row(t, stdout, title)
		if len(cells) != 10 {
			t.Fatalf("%s: %q", title, cells)
		}
		if changes := number(t, cells[1]); changes < 1 {
			t.Errorf("%s: no price was changed", title)
		}
		rates = append(rates, number(t, cells[4]))
	}
	t.Logf("%g look-ups per second with read locks, %g with others", rates[1], rates[0])
	if !strings.HasSuffix(stdout, "\nNo price was seen half changed, and no change was lost.\n") {
		t.Errorf("stdout: %q", stdout)
	}
}

// The checks can fail: without a lock, buyers see prices that are half changed, and the run says
// so. On a busy machine no buyer may look between two writes within half a second: then it takes
// longer.
func TestCatalogueWithoutLockFails(t *testing.T) {
	half := regexp.MustCompile(`FAILED: no lock at all: \d+ look-ups saw a change that was half done`)
	for d := 500 * time.Millisecond; ; d *= 4 {
		code, stdout, stderr := sell(t, t.Context(), "-catalogue -rungs none-read -skus 1 -reads 2 -duration "+d.String())
		if code != 0 && strings.Contains(stdout, "No price") {
			t.Errorf("exit status %d, stdout %q", code, stdout)
		}
		if code == 1 && half.MatchString(stderr) {
			return
		}
		if d > 5*time.Second {
			t.Fatalf("for %v: exit status %d, stdout %q, stderr %q", d, code, stdout, stderr)
		}
	}
}

func TestCatalogueFlags(t *testing.T) {
	cfg, err := parseFlags([]string{"-catalogue"}, nil)
	if err != nil || len(cfg.rungs) != 2 || cfg.reads != 1000 || cfg.rungs[0].shared || !cfg.rungs[1].shared {
		t.Errorf("%+v, %v", cfg, err)
	}
	for _, x := range []struct{ args, want string }{
		{"-catalogue -chaos", "-catalogue: not with -chaos"},
		{"-catalogue -rungs ring", "-rungs: ring is not one of a catalogue"},
		{"-rungs rlock", "-rungs: rlock is one of a catalogue"},
		{"-catalogue -reads 0", "-reads 0: want 1 to"},
	} {
		if _, err := parseFlags(strings.Fields(x.args), nil); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v", x.args, err)
		}
	}
}
