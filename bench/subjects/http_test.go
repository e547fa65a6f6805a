package subjects

import (
	"strings"
	"testing"
)

func TestHTTP(t *testing.T) {
	t.Parallel()
	b := tinyBench(t)
	r, err := measureHTTP(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	check(t, r)
	for _, c := range r.Claims[:3] {
		if !(c.Got > 0) {
			t.Errorf("%s: %v", c.Text, c.Got)
		}
	}
	for _, row := range r.Table {
		if strings.Contains(strings.Join(row, " "), "NaN") {
			t.Errorf("%q", row)
		}
	}
}
