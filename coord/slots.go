package coord

import (
	"time"
)

// slots is when the ownership was confirmed that was confirmed longest ago.
type slots struct {
	mu     mutex // protects what follows
	oldest time.Time
	since  time.Time // the same, of those that began since begin
}

// add is called for an ownership that begins.
func (x *slots) add(confirmed time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.oldest, x.since = earlier(x.oldest, confirmed), earlier(x.since, confirmed)
}

func (x *slots) begin() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.since = time.Time{}
}

// end is called with the oldest of all that were looked at since begin.
func (x *slots) end(oldest time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.oldest = oldest
	if !x.since.IsZero() {
		x.oldest = earlier(oldest, x.since)
	}
}
