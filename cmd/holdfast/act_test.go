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
