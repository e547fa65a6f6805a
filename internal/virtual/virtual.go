// Package virtual runs tests on virtual time.
package virtual

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

var turn sync.Mutex // protects the number of processors

// Test is [synctest.Test], on one processor where the race detector is on: Go 1.26 gives all timers
// of a bubble one race context, but runs a channel timer that has fired on whatever processor
// receives from it. Two at a time spoil that context, and the process dies somewhere in
// ThreadSanitizer. Races are found on one processor too: the detector looks at the order of events.
func Test(t *testing.T, f func(*testing.T)) {
	t.Helper()
	if race {
		turn.Lock()
		defer turn.Unlock()
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	synctest.Test(t, f)
}
