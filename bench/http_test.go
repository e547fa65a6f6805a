package main

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
	for _, c := range r.claims[:3] {
		if !(c.got > 0) {
			t.Errorf("%s: %v", c.text, c.got)
		}
	}
	for _, row := range r.table {
		if strings.Contains(strings.Join(row, " "), "NaN") {
			t.Errorf("%q", row)
		}
	}
}
