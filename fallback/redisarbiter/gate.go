package redisarbiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
)

// lockBatch is how many lock calls go out in one batch at most.
const lockBatch = 64

// gates limit the lock calls that are under way at each server to half of the client's connections.
// Calls that find no room wait together, and the next connection takes a batch of them.
type gates struct {
	cluster *redis.ClusterClient // nil: there is one gate
	size    int
	one     gate

	mu   sync.Mutex // protects each
	each map[*redis.Client]*gate
}

// gate is the lock calls of one server.
type gate struct {
	mu    sync.Mutex // protects room and queue
	room  int        // how many further calls may begin
	queue []*queued
}

// queued is a lock call that waits for room.
type queued struct {
	call  call
	limit time.Duration // how long it may take; 0: no limit
	done  chan outcome  // capacity 1
}

func (x *gates) init(c redis.UniversalClient) {
	x.size = lockBatch
	switch c := c.(type) {
	case *redis.Client:
		x.size = c.Options().PoolSize
	case *redis.ClusterClient:
		x.cluster, x.size = c, c.Options().PoolSize
		x.each = make(map[*redis.Client]*gate)
	}
	x.one.room = max(1, x.size/2)
}

// of returns the gate for a key.
func (x *gates) of(ctx context.Context, key string) *gate {
	if x.cluster == nil {
		return &x.one
	}
	m, err := x.cluster.MasterForKey(ctx, key)
	if err != nil {
		return &x.one // the call will have the error
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	g := x.each[m]
	if g == nil {
		if len(x.each) > 1024 { // servers come and go
			clear(x.each)
		}
		g = &gate{room: max(1, x.size/2)}
		x.each[m] = g
	}
	return g
}

// enter returns nil if there is room for c, which is taken. If not, it queues c.
func (g *gate) enter(ctx context.Context, c call, limit time.Duration) *queued {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.room > 0 {
		g.room--
		return nil
	}
	q := &queued{call: c, limit: limit, done: make(chan outcome, 1)}
	if d, limited := ctx.Deadline(); limit == 0 && limited {
		q.limit = time.Until(d)
	}
	g.queue = append(g.queue, q)
	return q
}

// leave returns calls that are to use the room of an ended one. If there are none, the room is
// free.
func (g *gate) leave() []*queued {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.queue), lockBatch)
	if n == 0 {
		g.room++
		return nil
	}
	batch := slices.Clone(g.queue[:n])
	g.queue = slices.Delete(g.queue, 0, n)
	return batch
}

// forget reports whether q was still waiting, and ends that.
func (g *gate) forget(q *queued) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.queue, q)
	if i < 0 {
		return false
	}
	g.queue = slices.Delete(g.queue, i, i+1)
	return true
}

// runLock executes a lock call: at once if there is room, with others otherwise.
func (n *redisSpace) runLock(ctx context.Context, c call, r fallback.LockRequest) (any, error) {
	if err := n.bar.closed(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", fallback.ErrNotSent, err)
	}
	g := n.gates.of(ctx, c.keys[0])
	q := g.enter(ctx, c, r.Limit)
	if q == nil {
		return n.lockNow(ctx, g, c, r)
	}
	select {
	case o := <-q.done:
		return o.v, o.err
	case <-ctx.Done():
		if g.forget(q) {
			return nil, n.explain(fmt.Errorf("%w: %w", fallback.ErrNotSent, ctx.Err()), n.conns.locks)
		}
		return nil, n.explain(ctx.Err(), n.conns.locks)
	}
}

// lockNow executes a lock call that has entered.
func (n *redisSpace) lockNow(ctx context.Context, g *gate, c call, r fallback.LockRequest) (v any, err error) {
	if r.Inline && honoursDeadline(n.conns.locks) {
		v, err = n.inline(ctx, g, c)
	} else {
		v, err = goOn(ctx, r.Limit, &n.calls, func(ctx context.Context) (any, error) {
			defer n.next(g)
			return n.one(ctx, c)
		})
	}
	return v, n.locked(err)
}

// inline executes a lock call in the caller's goroutine, which a hook of the client may end.
func (n *redisSpace) inline(ctx context.Context, g *gate, c call) (any, error) {
	defer n.next(g)
	return n.one(ctx, c)
}

// locked explains an error of a lock call, and remembers it if no other call will fare better.
func (n *redisSpace) locked(err error) error {
	if err == nil {
		n.bar.open()
		return nil
	}
	err = n.explain(refused(err), n.conns.locks)
	n.bar.note(err)
	return err
}

// next uses the room of a call that has ended for those that wait.
func (n *redisSpace) next(g *gate) {
	if batch := g.leave(); batch != nil {
		n.goOnWith(g, batch)
	}
}

func (n *redisSpace) goOnWith(g *gate, batch []*queued) {
	n.calls.Go(func() {
		for ; batch != nil; batch = g.leave() {
			n.lockMany(batch)
		}
	})
}

// lockMany executes lock calls in one go. It lasts patience times as long as a call may at most.
func (n *redisSpace) lockMany(batch []*queued) {
	if err := n.bar.closed(); err != nil {
		for _, q := range batch {
			q.done <- outcome{err: err}
		}
		return
	}
	calls, limit := make([]call, len(batch)), time.Duration(0)
	for i, q := range batch {
		calls[i] = q.call
		limit = max(limit, q.limit)
	}
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, patience*limit)
	}
	defer cancel()
	for i, o := range n.attempt(ctx, calls) {
		batch[i].done <- outcome{o.v, n.locked(o.err)}
	}
}

// explain adds the cause to an error of a call that got no connection in time.
func (n *redisSpace) explain(err error, c redis.UniversalClient) error {
	if err == nil || c != n.conns.locks || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, redis.ErrPoolTimeout) {
		return err
	}
	size := 0
	if one, ok := c.(*redis.Client); ok {
		size = one.Options().PoolSize
		if s := c.PoolStats(); int(s.TotalConns)-int(s.IdleConns) < size {
			size = 0
		}
	}
	switch {
	case size > 0:
		return fmt.Errorf("fallback: all %d connections of the Redis client are in use: "+
			"raise its PoolSize, or give Holdfast a client of its own: %w", size, err)
	case errors.Is(err, redis.ErrPoolTimeout):
		return fmt.Errorf("fallback: all connections of the Redis client are in use: "+
			"raise its PoolSize, or give Holdfast a client of its own: %w", err)
	}
	return err
}

// barFor is for how long lock calls fail without being sent after a server has refused a password.
const barFor = 500 * time.Millisecond

// bar keeps lock calls from asking a server again and again that has just refused a password. After
// barFor it lets one through.
type bar struct {
	on    atomic.Bool // the fields below are set; it is read without the mutex
	mu    sync.Mutex  // protects until and err
	until time.Time
	err   error
}

// closed returns why calls are not sent, or nil.
func (b *bar) closed() error {
	if !b.on.Load() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.err == nil || !now.Before(b.until) {
		b.until = now.Add(barFor) // for the others
		return nil
	}
	return fmt.Errorf("%w: %w", fallback.ErrNotSent, b.err)
}

// note closes the bar if err is about a password.
func (b *bar) note(err error) {
	if !errors.Is(err, errDenied) || errors.Is(err, fallback.ErrNotSent) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until, b.err = time.Now().Add(barFor), err
	b.on.Store(true)
}

func (b *bar) open() {
	if b.on.Load() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.err = nil
		b.on.Store(false)
	}
}
