package middleware

import (
	"context"
	"sync"

	"github.com/holdfast-go/holdfast/coord"
)

// held is the context of a handler that runs with a lock.
type held struct {
	context.Context
	c    *coord.Coordinator
	lock coord.Lock
}

type heldKey struct{}

// Value returns the held itself for heldKey: one allocation less than context.WithValue.
func (h *held) Value(key any) any {
	if key == (heldKey{}) {
		return h
	}
	return h.Context.Value(key)
}

// Lock returns the lock that [Serialize] holds for the request that ctx belongs to, the innermost if there are several. ok is
// false if there is none: the request's method or a KeyFunc made it pass without.
func Lock(ctx context.Context) (l coord.Lock, ok bool) {
	h, ok := ctx.Value(heldKey{}).(*held)
	if !ok {
		return coord.Lock{}, false
	}
	return h.lock, true
}

// heldBy returns the lock of c's key that is in force for the request, nil if there is none.
func heldBy(ctx context.Context, c *coord.Coordinator, key string) *held {
	h, _ := ctx.Value(heldKey{}).(*held)
	for h != nil {
		if h.c == c && h.lock.Key() == key && h.lock.Context().Err() == nil { // the handler may have unlocked it
			return h
		}
		h, _ = h.Context.Value(heldKey{}).(*held)
	}
	return nil
}

// counter counts the requests of each key that are here. It has nothing of keys that have none. The zero value is ready to use.
type counter struct {
	mu sync.Mutex
	n  map[string]int // by key, at least 1; guarded by mu
}

// enter counts a request, unless max others wait already behind the one that runs. A negative max is no limit.
func (q *counter) enter(key string, max int) bool {
	if max < 0 {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.n[key] > max {
		return false
	}
	if q.n == nil {
		q.n = make(map[string]int)
	}
	q.n[key]++
	return true
}

// leave undoes enter.
func (q *counter) leave(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch n := q.n[key]; {
	case n > 1:
		q.n[key] = n - 1
	case n == 1:
		delete(q.n, key)
	}
}
