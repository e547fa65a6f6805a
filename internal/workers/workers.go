// Package workers runs functions in goroutines that are used again.
//
// A new goroutine begins with a small stack, and a call through a database client outgrows it
// several times: this costs some 20 microseconds, a good part of a round trip. A goroutine that has
// been there before has its stack.
package workers

import "sync"

// Pool is a set of goroutines. The zero value is ready. Its methods are safe for concurrent use.
type Pool struct {
	mu     sync.Mutex // protects what follows
	idle   []*worker  // the last one that became idle is used first
	live   int        // goroutines, idle or not
	busy   int        // that run a function
	closed bool
	ended  sync.Cond // a goroutine has ended
}

// maxIdle bounds how many goroutines wait for work.
const maxIdle = 64

type worker struct {
	next chan func() // capacity 1; closed to end the worker
}

// Go runs f in a goroutine. It does not wait for it, and never for a goroutine to become free.
func (p *Pool) Go(f func()) {
	p.mu.Lock()
	p.busy++
	if n := len(p.idle); n > 0 {
		w := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		w.next <- f
		return
	}
	p.live++
	p.mu.Unlock()
	go p.work(&worker{next: make(chan func(), 1)}, f)
}

func (p *Pool) work(w *worker, f func()) {
	waits := false
	// If f panics or calls runtime.Goexit, the goroutine ends, as it would with a go statement.
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.live--
		if !waits {
			p.busy--
		}
		if p.ended.L != nil {
			p.ended.Broadcast()
		}
	}()
	for ok := true; ok; f, ok = <-w.next {
		waits = false
		f()
		p.mu.Lock()
		if p.closed || len(p.idle) >= maxIdle {
			p.mu.Unlock()
			return
		}
		waits = true
		p.busy--
		p.idle = append(p.idle, w)
		p.mu.Unlock()
	}
}

// Close ends the goroutines that wait for work, and waits for the others. After Close, or
// concurrently with it, Go still runs functions, but no caller waits for those.
func (p *Pool) Close() { p.close(func() bool { return p.live == 0 }) }

// CloseIdle ends the goroutines that wait for work, and does not wait for the others: each ends
// with its function.
func (p *Pool) CloseIdle() { p.close(func() bool { return p.live == p.busy }) }

func (p *Pool) close(done func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.ended.L = &p.mu
	for _, w := range p.idle {
		close(w.next)
	}
	p.idle = nil
	for !done() {
		p.ended.Wait()
	}
}
