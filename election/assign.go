package election

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/held"
)

// MaxShards is the largest number of shards.
const MaxShards = 4096

// A Shard is one of the shards that [Election.Assign] divides.
type Shard struct {
	Number int         // from 0
	Of     int         // how many there are
	Fence  coord.Fence // rises with each process that the shard moves to
}

// Assign divides n shards among the processes that call it, and calls fn for each shard of this
// process's, in a goroutine of its own. It blocks until ctx ends and all of them have returned. The
// shard counts of two processes differ by one at most. A process that comes or goes moves as few
// shards as that allows.
//
// A shard moves without overlap: its new process gets it when fn has returned in the old one. fn's
// context ends with ctx, when the shard is to move, and when its lock is lost; fn has to heed it. A
// shard of a process that crashed moves after coord.Options.SessionTTL (10 s), in a cluster after
// coord.Cluster.Takeover (3 s). A process that has stopped for longer than that may still act for
// the shard: Shard.Fence is for that.
//
// If fn returns before its context has ended, Assign calls it again after Options.Pause. Assign
// also waits that long at most for further new processes before shards move to them. All processes
// pass the same n: while they differ, that of the process that makes the plan counts. The election
// of the same name is another matter: a process may campaign and take shards. If ctx is that of a
// task ([coord.WithLocker]), each shard is a task of its own, which has the locks of that one, too.
//
// The plan has the ID of each process once, and the process of each shard as a number, in 64 KiB at
// most. One that is longer is told to Options.Logger, and shards stay where they are: with
// [MaxShards], IDs of 50 bytes leave room for some 900 processes.
//
// Errors: n is not 1 to [MaxShards]; [coord.ErrClosed]; [coord.ErrObserver]; [coord.ErrNoResults]
// without Options.Store where the arbiter keeps no results. Nil when ctx has ended.
func (e *Election) Assign(ctx context.Context, n int, fn func(ctx context.Context, s Shard) error) error {
	if n < 1 || n > MaxShards {
		return fmt.Errorf("election: Assign: n is %d, must be 1 to %d", n, MaxShards)
	}
	plans := e.part("shards")
	crew := plans.members("members")
	m, err := crew.join(ctx, nil)
	if err != nil {
		m.leave()
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer func() { m.quit(); cancel(nil) }() // also after a panic of the store
	a := assignment{e: plans, fn: fn, stops: make(map[int]context.CancelFunc)}
	a.work.Go(func() {
		// Run ends when the coordinator is closed, too: so does the assignment then.
		cancel(plans.Run(held.Apart(ctx), func(ctx context.Context, t *Term) error { return crew.plan(ctx, t, n) }))
	})
	for k := range plans.records(ctx) {
		if p, ok := decodePlan(k.Value); ok {
			a.follow(ctx, p.of(e.opts.ID), len(p))
		}
	}
	a.work.Go(m.leave) // meanwhile the shards are being let go
	a.follow(ctx, nil, n)
	a.work.Wait()
	if err := context.Cause(ctx); errors.Is(err, coord.ErrClosed) || errors.Is(err, coord.ErrObserver) {
		return err
	}
	return nil
}

// assignment is the shards that this process works on. Only the goroutine of Assign uses it.
type assignment struct {
	e     *Election
	fn    func(context.Context, Shard) error
	stops map[int]context.CancelFunc // by shard: those of this process's
	of    int
	work  sync.WaitGroup
}

// follow begins and ends work, so that exactly the given shards are worked on.
func (a *assignment) follow(ctx context.Context, mine map[int]bool, of int) {
	for i, stop := range a.stops {
		if !mine[i] || of != a.of {
			stop()
			delete(a.stops, i)
		}
	}
	a.of = of
	for i := range mine {
		if a.stops[i] == nil {
			own, stop := context.WithCancel(ctx)
			if own.Value(held.Task{}) != nil { // the shards wait for each other's locks
				own = coord.WithLocker(own)
			}
			a.stops[i] = stop
			a.work.Go(func() {
				defer stop()
				a.serve(own, Shard{Number: i, Of: of})
			})
		}
	}
}

// serve has the shard until ctx ends.
func (a *assignment) serve(ctx context.Context, s Shard) {
	key := fmt.Sprintf("%s/%d", a.e.key, s.Number)
	defer a.e.c.ExpectLong(key)()
	troubled := false // a record about the lock was written
	for ctx.Err() == nil {
		had, lost := false, false // the shard's lock: fn may return the loss of another one
		err := a.e.c.Do(ctx, key, func(ctx context.Context, l coord.Lock) error {
			had, s.Fence = true, l.Fence()
			own := l.Context()
			err := a.fn(ctx, s)
			lost = own.Err() != nil && errors.Is(context.Cause(own), coord.ErrLost)
			return err
		})
		if ctx.Err() != nil || errors.Is(err, coord.ErrClosed) {
			return
		}
		switch {
		case !had && !troubled:
			a.e.opts.Logger.Warn("holdfast: the lock of a shard cannot be had, and is tried again", "election", a.e.name, "shard", s.Number, "error", err)
		case had && !lost:
			a.e.opts.Logger.Warn("holdfast: the function of a shard has returned, and is called again", "election", a.e.name, "shard", s.Number, "error", err)
		}
		if troubled = !had; !lost {
			pause(ctx, a.e.opts.Pause)
		}
	}
}
