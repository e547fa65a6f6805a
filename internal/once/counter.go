package once

import "sync"

// Counter counts the requests of each key that are here. It has nothing of keys that have none. The zero value is ready to use.
type Counter struct {
	mu    sync.Mutex // protects what follows
	n     map[string]*present
	spare *present // of a key that has none any more; nil: none is
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
	switch {
	case p != nil:
		if p.waiting+min(p.begun, 1) > most {
			return false
		}
	case q.spare != nil:
		p, q.spare = q.spare, nil
	default:
		p = new(present)
	}
	if p.waiting++; p.waiting+p.begun == 1 {
		if q.n == nil {
			q.n = make(map[string]*present)
		}
		q.n[key] = p
	}
	return true
}

// Leave undoes Enter.
func (q *Counter) Leave(key string) { q.change(key, -1, 0) }

// Begin says that a request waits no more, as it has its turn.
func (q *Counter) Begin(key string) { q.change(key, -1, +1) }

// End says that a request is over that has begun.
func (q *Counter) End(key string) { q.change(key, 0, -1) }

// change adds to a key's numbers if its requests are counted.
func (q *Counter) change(key string, waiting, begun int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.n[key]
	if p == nil {
		return
	}
	p.waiting, p.begun = p.waiting+waiting, p.begun+begun
	if *p == (present{}) {
		delete(q.n, key)
		q.spare = p
	}
}
