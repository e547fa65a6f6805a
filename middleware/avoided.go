package middleware

import (
	"sync"
	"time"
)

// avoided are the nodes that could not be reached a moment ago. It takes the time as an argument.
// The zero value is ready to use.
type avoided struct {
	mu    sync.Mutex
	until map[string]time.Time // by name; guarded by mu
}

// try reports whether to try the node now. When its time is over, it lets one request try, and the
// others wait for as long again.
func (a *avoided) try(name string, wait time.Duration, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	until, ok := a.until[name]
	if !ok {
		return true
	}
	if now.Before(until) {
		return false
	}
	a.until[name] = now.Add(wait)
	return true
}

// add avoids a node from now on. It reports whether that is news.
func (a *avoided) add(name string, wait time.Duration, now time.Time) bool {
	if wait < 0 {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, known := a.until[name]
	for n, until := range a.until { // names are never used again, so that those of nodes that have ended would pile up
		if n != name && now.Sub(until) > time.Hour {
			delete(a.until, n)
		}
	}
	if a.until == nil {
		a.until = make(map[string]time.Time)
	}
	a.until[name] = now.Add(wait)
	return !known
}

// remove: the node answers.
func (a *avoided) remove(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.until, name)
}
