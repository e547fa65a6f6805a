// Package coordtest starts coordinators for the tests of packages that use them.
package coordtest

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/virtual"
)

// Few is the number of partitions in tests that are not about it. A node walks over its partitions
// several times a second: with the default and the race detector, an hour of virtual time took a
// processor ten seconds.
const Few = 61

// WithFew returns the options with few partitions, unless they name a number.
func WithFew(opts *coord.Options) *coord.Options {
	var o coord.Options
	if opts != nil {
		o = *opts
	}
	if o.Partitions == 0 {
		o.Partitions = Few
	}
	return &o
}

// Start is StartDefault with few partitions.
func Start(tb testing.TB, a fallback.Arbiter, opts *coord.Options) *coord.Coordinator {
	tb.Helper()
	return StartDefault(tb, a, WithFew(opts))
}

// StartDefault returns a coordinator that is closed when the test ends. The test fails if it has
// something left then that it cannot give back. It is for tests of a node's work for many
// partitions or many holds.
func StartDefault(tb testing.TB, a fallback.Arbiter, opts *coord.Options) *coord.Coordinator {
	tb.Helper()
	c, err := coord.New(context.Background(), a, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return c
}

// Bubble runs f on virtual time, in a year in which epochs are as large as in earnest: a bubble
// begins in 2000, where epochs count from. f gets a new arbiter in memory.
func Bubble(t *testing.T, f func(t *testing.T, a *fallback.Memory)) {
	t.Helper()
	virtual.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)))
		f(t, fallback.NewMemory())
	})
}
