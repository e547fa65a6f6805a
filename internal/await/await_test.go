package await_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/await"
)

// failing notes failures instead of failing.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper()                         {}
func (f *failing) Errorf(text string, args ...any) { f.said = fmt.Sprintf(text, args...) }
func (f *failing) Fatalf(text string, args ...any) { f.said = fmt.Sprintf(text, args...) }

func TestAwait(t *testing.T) {
	at := func(d time.Duration) func() bool {
		begin := time.Now()
		return func() bool { return time.Since(begin) >= d }
	}
	for name, x := range map[string]struct {
		call func(testing.TB)
		said string
		took time.Duration
	}{
		"at once":            {func(tb testing.TB) { await.Until(tb, "x", at(0)) }, "", 0},
		"later":              {func(tb testing.TB) { await.Until(tb, "x", at(9*time.Second)) }, "", 9 * time.Second},
		"never":              {func(tb testing.TB) { await.Until(tb, "x", at(time.Hour)) }, "not within 30s: x", await.Limit},
		"within":             {func(tb testing.TB) { await.Within(tb, time.Minute, "x", at(59*time.Second)) }, "", 59 * time.Second},
		"not within":         {func(tb testing.TB) { await.Within(tb, time.Minute, "x", at(time.Hour)) }, "not within 1m0s: x", time.Minute},
		"looks once":         {func(tb testing.TB) { await.Within(tb, 0, "x", at(0)) }, "", 0},
		"throughout":         {func(tb testing.TB) { throughout(t, tb, true, time.Second, func() bool { return true }) }, "", time.Second},
		"not from the start": {func(tb testing.TB) { throughout(t, tb, false, time.Second, at(time.Hour)) }, "after 0s of 1s no longer: x", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tb, begin := &failing{TB: t}, time.Now()
				x.call(tb)
				took := time.Since(begin)
				if tb.said != x.said || took < x.took || took > x.took+20*time.Millisecond {
					t.Errorf("after %v %q, want after %v %q", took, tb.said, x.took, x.said)
				}
			})
		})
	}
}

func throughout(t, tb testing.TB, want bool, d time.Duration, ok func() bool) {
	if got := await.Throughout(tb, d, "x", ok); got != want {
		t.Errorf("Throughout returned %t", got)
	}
}
