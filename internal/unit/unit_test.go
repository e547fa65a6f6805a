package unit_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/unit"
)

func TestCheck(t *testing.T) {
	for _, d := range []time.Duration{-time.Second, -1, 0, time.Second, 24 * time.Hour} {
		if err := unit.Check("Options.TTL", d, time.Second, "24 * time.Hour"); err != nil {
			t.Errorf("%v: %v", d, err)
		}
	}
	const want = "Options.TTL is 24ns, must be at least 1s: a number without a unit is in nanoseconds, write it as in 24 * time.Hour"
	if err := unit.Check("Options.TTL", 24, time.Second, "24 * time.Hour"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := unit.Check("Options.TTL", time.Second-1, time.Second, "24 * time.Hour"); err == nil {
		t.Error("just too short: accepted")
	}
}
