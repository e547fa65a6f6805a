//go:build unix

package faults

import (
	"sync/atomic"
	"time"
)

// stalls notices when the machine does not let this process run. That is no fault that a test commits, and where it is as
// long as what a bound is made of, it says nothing about the library.
type stalls struct {
	total   atomic.Int64 // nanoseconds
	longest atomic.Int64
}

// short is what a process may be kept waiting without being called stalled: less than the slack of any bound.
const short = 200 * time.Millisecond

// watch never returns.
func (s *stalls) watch(tell func(time.Duration)) {
	const tick = 20 * time.Millisecond
	for last := time.Now(); ; {
		time.Sleep(tick)
		now := time.Now()
		if d := now.Sub(last) - tick; d > short {
			s.total.Add(int64(d))
			s.longest.Store(max(s.longest.Load(), int64(d)))
			tell(d)
		}
		last = now
	}
}

// mine are the stalls of this process. In the test's process everything goes slowly then: the judge and the proxies.
var mine stalls

func (s *stalls) sum() time.Duration { return time.Duration(s.total.Load()) }
