// Package await watches conditions of which no event tells: those of other processes and servers,
// and of counters. Tests await a channel where there is one.
package await

import (
	"testing"
	"time"
)

// Limit is the time that Until gives a condition: machines that run tests can be slow.
const Limit = 30 * time.Second

const (
	shortest = 100 * time.Microsecond // the first pause between two looks
	longest  = 10 * time.Millisecond  // pauses double up to this
)

// Until returns when ok reports true. After [Limit] it ends the test.
func Until(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	Within(tb, Limit, what, ok)
}

// Within returns when ok reports true. After the limit it ends the test. It calls ok at least once,
// in the calling goroutine.
func Within(tb testing.TB, limit time.Duration, what string, ok func() bool) {
	tb.Helper()
	if !seen(limit, ok) {
		tb.Fatalf("not within %v: %s", limit, what)
	}
}

// Throughout looks for a while whether ok goes on to report true. Else it fails the test and
// returns false. It may be called in any goroutine.
func Throughout(tb testing.TB, while time.Duration, what string, ok func() bool) bool {
	tb.Helper()
	begin := time.Now()
	if seen(while, func() bool { return !ok() }) {
		tb.Errorf("after %v of %v no longer: %s", time.Since(begin), while, what)
		return false
	}
	return true
}

// seen reports whether ok reports true before the limit, or just after it.
func seen(limit time.Duration, ok func() bool) bool {
	end := time.NewTimer(limit)
	defer end.Stop()
	pause := shortest
	next := time.NewTimer(pause)
	defer next.Stop()
	for !ok() {
		select {
		case <-next.C:
			pause = min(2*pause, longest)
			next.Reset(pause)
		case <-end.C:
			return ok() // this goroutine may have stood still
		}
	}
	return true
}
