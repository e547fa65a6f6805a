// Package stall notices when the machine does not let a process run. That is no fault that a test
// commits. A stall as long as the times of a bound says nothing about the library.
package stall

import (
	"sync/atomic"
	"time"
)

// A Watch is the stalls seen so far. The zero value is ready.
type Watch struct {
	total   atomic.Int64 // nanoseconds
	longest atomic.Int64
	late    atomic.Int64
}

// short is how long a process may be kept waiting without being called stalled: less than the slack
// of any bound.
const short = 200 * time.Millisecond

// usual is how late a goroutine may be that has slept, where the machine has little else to do.
const usual = 3 * time.Millisecond

// Run looks, and tells of each stall. It never returns.
func (w *Watch) Run(tell func(time.Duration)) {
	const tick = 20 * time.Millisecond
	for last := time.Now(); ; {
		time.Sleep(tick)
		now := time.Now()
		d := now.Sub(last) - tick
		if d > usual {
			w.late.Add(int64(d))
		}
		if d > short {
			w.total.Add(int64(d))
			w.longest.Store(max(w.longest.Load(), int64(d)))
			tell(d)
		}
		last = now
	}
}

// Sum is the length of all stalls so far.
func (w *Watch) Sum() time.Duration { return time.Duration(w.total.Load()) }

// Longest is the length of the longest one.
func (w *Watch) Longest() time.Duration { return time.Duration(w.longest.Load()) }

// Late is by how much the looks came late so far: the stalls, and all the time that this process
// waited for a processor besides. Other processes of the machine wait as well.
func (w *Watch) Late() time.Duration { return time.Duration(w.late.Load()) }
