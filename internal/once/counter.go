package once

import "sync"

// Counter counts the requests of each key that are here. It has nothing of keys that have none. The zero value is ready to use.
type Counter struct {
	mu sync.Mutex
	n  map[string]present // by key; guarded by mu
}

// present is how many requests of a key are here. One of the two is positive.
type present struct {
	waiting int // for their turn
	begun   int // that have had it: one of them runs, and others may have given their lock back early
}

// Enter counts a request that waits, unless most others wait already behind the one that runs. A negative number is no limit.
func (q *Counter) Enter(key string, most int) bool {
	if most < 0 {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.n[key]
	if p.waiting+min(p.begun, 1) > most {
		return false
	}
	if q.n == nil {
		q.n = make(map[string]present)
	}
	p.waiting++
	q.n[key] = p
	return true
}

// Leave undoes Enter.
func (q *Counter) Leave(key string) { q.change(key, func(p *present) { p.waiting-- }) }

// Begin says that a request waits no more, as it has its turn.
func (q *Counter) Begin(key string) {
	q.change(key, func(p *present) { p.waiting, p.begun = p.waiting-1, p.begun+1 })
}

// End says that a request is over that has begun.
func (q *Counter) End(key string) { q.change(key, func(p *present) { p.begun-- }) }

// change changes a key's numbers if its requests are counted.
func (q *Counter) change(key string, f func(*present)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p, ok := q.n[key]
	if !ok {
		return
	}
	if f(&p); p == (present{}) {
		delete(q.n, key)
	} else {
		q.n[key] = p
	}
}
