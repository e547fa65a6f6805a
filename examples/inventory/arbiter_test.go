package main

import (
	"strings"
	"testing"
)

// The main job, on each arbiter.
func TestSaleOverOtherArbiters(t *testing.T) {
	for _, store := range []string{"postgres", "sqlite"} {
		t.Run(store, func(t *testing.T) {
			if store == "postgres" {
				needPostgres(t)
			}
			code, stdout, stderr := sell(t, t.Context(), "-rungs ring -duration 500ms -processes 2 -goroutines 2 -skus 2 -arbiter "+store)
			if code != 0 || !strings.Contains(stdout, "the arbiter is on "+store) || !strings.Contains(stdout, "No unit was sold twice") {
				t.Errorf("status %d\n%s%s", code, stdout, stderr)
			}
		})
	}
}
