package figures_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/figures"
)

func TestNumbers(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                         "0 µs",
		999 * time.Microsecond:    "999 µs",
		1234 * time.Microsecond:   "1.23 ms",
		45678 * time.Microsecond:  "45.7 ms",
		456789 * time.Microsecond: "457 ms",
		12345 * time.Millisecond:  "12.3 s",
	} {
		if got := strings.TrimSpace(figures.Duration(d)); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{
		0: "0", 12: "12", 999: "999", 1000: "1,000", 123456: "123,456", 1234567: "1,234,567", -1000: "-1,000", -999: "-999",
	} {
		if got := figures.Thousands(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestAlign(t *testing.T) {
	var b strings.Builder
	figures.Align(&b, [][]string{{"", "rate", "µs"}, {"a lock", "1", "22"}, {"another", "10"}})
	if want := "         rate  µs\na lock      1  22\nanother    10\n"; b.String() != want {
		t.Errorf("got\n%q, want\n%q", b.String(), want)
	}
}
