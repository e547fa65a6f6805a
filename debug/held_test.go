package debug_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/debug"
	"github.com/holdfast-go/holdfast/fallback"
)

// A lock that others want is named among any number of those that none wants, unless its holder
// expects callers to wait.
func TestLook_ALockThatOthersWant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, fallback.NewMemory(), &coord.Options{Namespace: "shop"})
		for i := range 101 {
			defer lock(t, c, fmt.Sprint("quiet ", i))()
		}
		time.Sleep(time.Second)
		defer lock(t, c, "stuck")()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if _, err := c.Lock(ctx, "stuck"); err == nil {
			t.Fatal("two have the lock")
		}
		if o := debug.Look(t.Context(), c); len(o.Problems) != 1 || !strings.HasPrefix(o.Problems[0], `Key "stuck" is wanted`) {
			t.Errorf("the page says %q", o.Problems)
		}
		defer c.ExpectLong("stuck")()
		if o := debug.Look(t.Context(), c); len(o.Problems) != 0 {
			t.Errorf("of a hold that is expected the page says %q", o.Problems)
		}
	})
}

// lock locks a key. It returns a function that unlocks it.
func lock(t *testing.T, c *coord.Coordinator, key string) (unlock func()) {
	t.Helper()
	l, err := c.Lock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = l.Unlock() }
}
