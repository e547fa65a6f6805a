package coord

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// race is true in a build that is too slow for the measurement.
var race bool

// shortHold is for how long a walk over a million keys may have a partition's mutex at a time.
const shortHold = time.Millisecond

// A walk over all keys has the mutex of a partition with a million of them for less than a
// millisecond at a time. That is the processor's time of its thread: the machine's other work does
// not count.
func TestSurvey_AMillionKeys(t *testing.T) {
	takes.Seconds(t)
	if race {
		t.Skip("the race detector takes longer: see make budget")
	}
	if threadTime(t) == 0 {
		t.Skip("the time of a thread is not known here")
	}
	c, p := manyKeys(t, 1_000_000)
	for name, walk := range map[string]func(rest func() bool){
		"Survey":  func(rest func() bool) { p.Survey(c.moment(), rest, func(lease.Glance) {}) },
		"Overdue": func(rest func() bool) { p.Overdue(c.moment(), rest, time.Hour, time.Hour, func(lease.Overdue) {}) },
		"Count": func(rest func() bool) {
			p.Count(c.moment(), rest, &lease.Counts{}, func(lease.Path, uint64) {}, c.tells.expected.has)
		},
	} {
		longest := time.Hour // hold, of the walk with the shortest: an interrupt counts as the thread's
		for range 5 {
			holds := holdTimes(t, p, walk)
			slices.Sort(holds)
			n := len(holds)
			t.Logf("%s: %d holds, half of them within %v, 999 of 1,000 within %v, all within %v", name, n, holds[n/2], holds[n*999/1000], holds[n-1])
			if n < 1_000_000/lease.WalkAtOnce {
				t.Errorf("%s: %d holds", name, n)
			}
			if longest = min(longest, holds[n-1]); longest < shortHold {
				break
			}
		}
		if longest >= shortHold {
			t.Errorf("%s: it had the mutex for %v", name, longest)
		}
	}
}

// holdTimes walks, and returns for how long the walk had the mutex at a time, in the processor's
// time of this thread.
func holdTimes(tb testing.TB, p *partition, walk func(rest func() bool)) (holds []time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	holds = make([]time.Duration, 0, 8192)
	p.mu.Lock()
	defer p.mu.Unlock()
	begun := threadTime(tb)
	walk(func() bool {
		holds = append(holds, threadTime(tb)-begun)
		p.letIn()
		begun = threadTime(tb)
		return true
	})
	return append(holds, threadTime(tb)-begun)
}
