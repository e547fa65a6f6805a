package report

import (
	"math"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/bench/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestClaims(t *testing.T) {
	for _, test := range []struct {
		claim Claim
		holds bool
	}{
		{AtMost(2, 2, ""), true},
		{AtMost(2, 2.01, ""), false},
		{AtLeast(2, 2, ""), true},
		{AtLeast(2, 1.99, ""), false},
		{AtMost(2, math.NaN(), ""), false},
		{AtLeast(2, math.NaN(), ""), false},
		{AtLeast(2, stats.Ratio(1, 0), ""), false},
	} {
		if test.claim.Holds != test.holds {
			t.Errorf("%+v", test)
		}
	}
}

func TestResultIsPrinted(t *testing.T) {
	var out strings.Builder
	Result{
		Title:  "T",
		Table:  [][]string{{"", "µs"}, {"first", "1"}, {"2nd", "1,000"}},
		Notes:  []string{"a note"},
		Claims: []Claim{AtMost(1.3, 1.5, "slow"), AtLeast(20, 2000, "fast")},
	}.Write(&out)
	want := `
T

          µs
first      1
2nd    1,000

a note

must hold  measured         limit
slow           1.50  at most 1.30  DOES NOT HOLD
fast          2,000   at least 20          holds
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
