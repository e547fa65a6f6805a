package once

import "sync"

// Counter counts the requests of each key that are here. Of keys that have none it has the last
// one, as the next request is often of the same. The zero value is ready to use.
type Counter struct {
	mu   sync.Mutex // protects the fields below
	n    map[string]*present
	last *present // looked up last, in n; nil: none is
	idle *present // the one in n that has no requests; nil: there is none
}

// present is how many requests of a key are here. One of the two is positive, but for the idle one.
type present struct {
	key     string
	waiting int // for their turn
	begun   int // that have had it: one of them runs, and others may have given their lock back early
}

// of returns a key's numbers, nil if it has none. The mutex is held.
func (q *Counter) of(key string) *present {
	if q.last == nil || q.last.key != key {
		q.last = q.n[key]
	}
	return q.last
}

// enter returns the numbers of a key that has none, at zero. The mutex is held.
func (q *Counter) enter(key string) *present {
	p := q.idle
	if p == nil {
		p = new(present)
	} else {
		delete(q.n, p.key)
		q.idle = nil
	}
	if q.n == nil {
		q.n = make(map[string]*present)
	}
	p.key = key
	q.n[key], q.last = p, p
	return p
}

// Enter counts a request that waits, unless most others wait already behind the one that runs. A
// negative number is no limit.
func (q *Counter) Enter(key string, most int) bool {
	if most < 0 {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch p := q.of(key); {
	case p == nil:
		q.enter(key).waiting = 1
	case p == q.idle:
		q.idle, p.waiting = nil, 1
	case p.waiting+min(p.begun, 1) > most:
		return false
	default:
		p.waiting++
	}
	return true
}

// Leave undoes Enter.
func (q *Counter) Leave(key string) { q.change(key, -1, 0) }

// Begin counts a request as begun: it waits no more, as it has its turn.
func (q *Counter) Begin(key string) { q.change(key, -1, +1) }

// End removes a request that has begun from the count.
func (q *Counter) End(key string) { q.change(key, 0, -1) }

// change adds to a key's numbers if its requests are counted.
func (q *Counter) change(key string, waiting, begun int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.of(key)
	if p == nil || p == q.idle {
		return
	}
	if p.waiting, p.begun = p.waiting+waiting, p.begun+begun; p.waiting != 0 || p.begun != 0 {
		return
	}
	if q.idle != nil {
		delete(q.n, q.idle.key)
	}
	q.idle = p
}
