package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// The number of partitions that are left is the node's last answer, also if the wait ends while it
// is asked again.
func TestDrain_TheWaitEndsWhileTheNodeIsAsked(t *testing.T) {
	for wait, want := range map[time.Duration]string{time.Second: "7 partitions are left", 500 * time.Millisecond: "it is not known how many"} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			_, err := drained(ctx, func() (coord.NodeReport, error) {
				select {
				case <-time.After(600 * time.Millisecond):
					return coord.NodeReport{Owned: 7}, nil
				case <-ctx.Done():
					return coord.NodeReport{}, ctx.Err()
				}
			})
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
				t.Errorf("after %v: %v, want %q", wait, err, want)
			}
		})
	}
}

// A node is called by its name, its HOST:PID or its ID. Of several that have one name, the error
// says what tells them apart.
func TestPick(t *testing.T) {
	t.Parallel()
	all := []coord.Process{
		{Name: "vm", ID: "vm/A", Host: "vm", PID: 7}, {Name: "vm", ID: "vm/B", Host: "vm", PID: 8}, {Name: "anna", ID: "anna/C", Host: "vm", PID: 9},
		{Name: "loner", Host: "vm", PID: 10},
	}
	for text, want := range map[string]string{"vm/A": "vm/A", "vm:8": "vm/B", "anna": "anna/C", "vm:9": "anna/C", "dora": "dora", "loner": "loner", "": ""} {
		if got, err := pick(all, text); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	if got, err := pick(all, "vm"); err == nil || got != "" || !strings.HasSuffix(err.Error(), ": vm:7, whose ID is vm/A; vm:8, whose ID is vm/B") {
		t.Errorf("%q, %v", got, err)
	}
	listed := []coord.NodeInfo{{Name: "vm", ID: "vm/A"}, {Name: "vm", ID: "vm/B"}, {Name: "anna", ID: "anna/C"}}
	if got := strings.Join(completions(listed), " "); got != "vm/A vm/B anna" {
		t.Errorf("completions %s", got)
	}
}
