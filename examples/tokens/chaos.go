package main

import "context"

// kills is the number of processes killed on a rung with -chaos.
const kills = 3

// mayKill is called when the provider has committed the n-th refresh, for a worker, and has not
// answered yet: now and then it kills the worker, as a power failure would, and starts another. It
// returns when the worker is no more, and reports whether it was killed.
func (t *trial) mayKill(ctx context.Context, worker, n int) bool {
	every := t.expiries / (kills + 1)
	if every == 0 || n%every != 0 || n/every > kills {
		return false
	}
	select {
	case <-t.provider.done: // no caller waits for its outcome
		return false
	default:
	}
	t.mu.Lock()
	w := t.workers[worker]
	if w == nil || t.stopped || ctx.Err() != nil {
		t.mu.Unlock()
		return false
	}
	w.killed = true
	t.killed++
	t.starting++
	_ = w.cmd.Process.Kill() // if it has ended just now, that will be seen
	t.mu.Unlock()
	<-w.exited
	t.start(ctx, worker)
	t.reports <- report{started: true}
	return true
}
