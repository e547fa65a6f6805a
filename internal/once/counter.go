package once

import "sync"

// Counter counts the requests of each key that are here. It has nothing of keys that have none. The zero value is ready to use.
type Counter struct {
	mu sync.Mutex
	n  map[string]int // by key, at least 1; guarded by mu
}

// Enter counts a request, unless most others wait already behind the one that runs. A negative number is no limit.
func (q *Counter) Enter(key string, most int) bool {
	if most < 0 {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.n[key]
	if n > most {
		return false
	}
	if q.n == nil {
		q.n = make(map[string]int)
	}
	q.n[key] = n + 1
	return true
}

// Leave undoes Enter.
func (q *Counter) Leave(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch n := q.n[key]; {
	case n > 1:
		q.n[key] = n - 1
	case n == 1:
		delete(q.n, key)
	}
}
