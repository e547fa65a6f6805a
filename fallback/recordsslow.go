package fallback

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// slowness is how long calls of a store took of late.
type slowness struct {
	mu   sync.Mutex // protects the fields below
	took [64]time.Duration
	n    int // of all calls
}

func (x *slowness) note(d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.took[x.n%len(x.took)] = d
	x.n++
}

// advice returns advice if one call of the store in ten takes longer than half of its time. By the
// default options, a call has a tenth of SessionTTL. lease is SessionTTL + Margin.
func (x *slowness) advice(lease time.Duration) []string {
	x.mu.Lock()
	took := slices.Clone(x.took[:min(x.n, len(x.took))])
	x.mu.Unlock()
	if len(took) < 10 || lease == 0 {
		return nil
	}
	slices.Sort(took)
	slow := took[len(took)*9/10]
	if 2*slow <= lease/11 {
		return nil
	}
	const step = 5 * time.Second
	return []string{fmt.Sprintf("one call of the store in ten takes longer than %v: a process may lose its locks because it cannot renew its session in time. "+
		"Set SessionTTL to %v or more", slow.Round(time.Millisecond), (25*slow + step).Truncate(step))}
}
