package coord

import "context"

// flights counts the calls of the arbiter that may grant something or confirm it, until their
// answers have been taken. Those that were begun before a moment are a generation (E3).
type flights struct {
	mu    mutex[leafRank] // protects the fields below
	at    int             // the present generation
	calls [2]int          // of each generation
	empty chan struct{}   // closed when the one before has no calls any more
}

// begin is called before a call is sent, and end with its generation once the answer has been
// taken.
func (x *flights) begin() (generation int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.calls[x.at]++
	return x.at
}

func (x *flights) end(generation int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.calls[generation]--
	if x.empty != nil && x.calls[1-x.at] == 0 {
		close(x.empty)
		x.empty = nil
	}
}

// settled waits until the calls that were begun before have ended. It reports false if ctx ends
// first. It is called by one goroutine at a time.
func (x *flights) settled(ctx context.Context) bool {
	if !x.drained(ctx) { // of a generation that was not waited for to its end
		return false
	}
	x.mu.Lock()
	x.at = 1 - x.at
	x.mu.Unlock()
	return x.drained(ctx)
}

// drained waits for the generation before.
func (x *flights) drained(ctx context.Context) bool {
	x.mu.Lock()
	if x.calls[1-x.at] == 0 {
		x.mu.Unlock()
		return true
	}
	empty := make(chan struct{})
	x.empty = empty
	x.mu.Unlock()
	select {
	case <-empty:
		return true
	case <-ctx.Done():
		return false
	}
}
