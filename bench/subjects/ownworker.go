package subjects

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/coord"
)

var ownTasks = harness.NewTask("own", runOwn)

// ownTask tells a worker to be the only node of a cluster.
type ownTask struct {
	Blocks    int `json:"blocks"`
	Pairs     int `json:"pairs"`
	HandOvers int `json:"handOvers"`
	Calls     int `json:"calls"`
	Core      int `json:"core"` // to call Redis from; negative: any
}

// ownResult is what the worker found: nanoseconds, by block.
type ownResult struct {
	Mutex, Lock, Many, Redis, Clock []float64
	PingPong, Token, HandOver       []float64
	PingPong1, Token1, HandOver1    []float64                // with one processor
	Allocs                          []float64                // per Lock and Unlock
	Used                            [ownParts][]stats.Effort // of each part, in its order

	Procs      int
	Own, Other int64 // locks, by path
	Commands   int64 // of the node
	Trips      int64
	Took       time.Duration
}

// ownParts is how many things are measured.
const ownParts = 11

// ownRun is both sides of the comparisons.
type ownRun struct {
	c      *coord.Coordinator
	bare   *redis.Client
	prefix string
	keys   []string
	core   int
}

func runOwn(ctx context.Context, h *harness.Host, t ownTask) (_ *ownResult, err error) {
	r := ownRun{prefix: h.Namespace, core: t.Core}
	for i := range 1000 {
		r.keys = append(r.keys, "order-"+strconv.Itoa(i))
	}
	var bare, count *harness.Counter
	r.bare, bare = bareClient(h)
	if r.c, count, err = startNode(h, 0, rivals.ClusterOptions(h.Order)); err != nil {
		return nil, err
	}
	if err := awaitStats(ctx, r.c, 10*time.Millisecond, func(s coord.Stats) bool { return s.Owned == partitions }); err != nil {
		return nil, err
	}

	res := ownResult{Procs: runtime.GOMAXPROCS(0)}
	parts := [ownParts]struct {
		to      *[]float64
		one     bool // with one processor
		n       int
		measure func(ctx context.Context, n int) (time.Duration, error)
	}{
		{&res.Mutex, false, 5 * t.Pairs, timed(r.mutex)},
		{&res.Lock, false, t.Pairs, timed(r.lock)},
		{&res.Many, false, t.Pairs, timed(r.many)},
		{&res.Redis, false, t.Calls, timed(r.redis)},
		{&res.Clock, false, t.Pairs, timed(clock)},
		{&res.PingPong, false, t.HandOvers, timed(pingPong)},
		{&res.Token, false, t.HandOvers, token(ownWaiters)},
		{&res.HandOver, false, t.HandOvers, handOver(r.c, r.keys[0], ownWaiters)},
		{&res.PingPong1, true, t.HandOvers, timed(pingPong)},
		{&res.Token1, true, t.HandOvers, token(ownWaiters)},
		{&res.HandOver1, true, t.HandOvers, handOver(r.c, r.keys[0], ownWaiters)},
	}
	commands, trips, begun, before := count.Commands.Load(), count.Trips.Load(), time.Now(), r.c.Stats()
	for block := range t.Blocks + 1 {
		for i := range parts {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			p := &parts[(i+block*3)%len(parts)]
			h.At(block*len(parts)+i, (t.Blocks+1)*len(parts))
			if p.one {
				runtime.GOMAXPROCS(1)
			}
			used := harness.NewMeter(count, bare)
			undo, err := func() error { return nil }, error(nil)
			if p.to == &res.Redis && r.core >= 0 {
				undo, err = harness.Pin(os.Getpid(), r.core)
			}
			var took time.Duration
			if err == nil {
				took, err = p.measure(ctx, p.n)
			}
			err = errors.Join(err, undo())
			e := used.Read(int64(p.n))
			if p.one {
				runtime.GOMAXPROCS(res.Procs)
			}
			if err != nil {
				return nil, err
			}
			if block == 0 { // connections, scripts, pools
				continue
			}
			*p.to = append(*p.to, float64(took)/float64(p.n))
			res.Used[(i+block*3)%len(parts)] = append(res.Used[(i+block*3)%len(parts)], e)
			if p.to == &res.Lock {
				res.Allocs = append(res.Allocs, float64(e.Allocs)/float64(p.n))
			}
		}
	}
	res.Commands, res.Trips, res.Took = count.Commands.Load()-commands, count.Trips.Load()-trips, time.Since(begun)
	res.Own, res.Other = byPath(r.c, before, coord.PathOwn)
	return &res, nil
}

func (r *ownRun) mutex(_ context.Context, n int) error {
	var mu sync.Mutex
	for range n {
		mu.Lock()
		mu.Unlock() //nolint:staticcheck // the pair is what is measured
	}
	return nil
}

func (r *ownRun) lock(ctx context.Context, n int) error {
	for range n {
		if err := r.pair(ctx, r.keys[0]); err != nil {
			return err
		}
	}
	return nil
}

func (r *ownRun) many(ctx context.Context, n int) error {
	for i := range n {
		if err := r.pair(ctx, r.keys[i%len(r.keys)]); err != nil {
			return err
		}
	}
	return nil
}

func (r *ownRun) pair(ctx context.Context, key string) error { return pair(ctx, r.c, key) }

func pair(ctx context.Context, c *coord.Coordinator, key string) error {
	l, err := c.Lock(ctx, key)
	if err != nil {
		return err
	}
	return l.Unlock()
}

func (r *ownRun) redis(ctx context.Context, n int) error {
	for range n {
		if err := rivals.SetPair(ctx, r.bare, r.prefix+":set"); err != nil {
			return err
		}
	}
	return nil
}

func clock(_ context.Context, n int) error {
	for range n {
		_ = time.Now()
	}
	return nil
}

// pingPong lets two goroutines wake each other in turn: n times there and back.
func pingPong(_ context.Context, n int) error {
	ping, pong := make(chan struct{}), make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		for range ping {
			pong <- struct{}{}
		}
	})
	for range n {
		ping <- struct{}{}
		<-pong
	}
	close(ping)
	work.Wait()
	return nil
}

// timed measures all of f.
func timed(f func(context.Context, int) error) func(context.Context, int) (time.Duration, error) {
	return func(ctx context.Context, n int) (time.Duration, error) {
		begin := time.Now()
		err := f(ctx, n)
		return time.Since(begin), err
	}
}

// token lets goroutines pass a token on, in order of arrival. The clock runs from when all of them
// wait, so none gets the token twice in a row.
func token(goroutines int) func(context.Context, int) (time.Duration, error) {
	return func(_ context.Context, n int) (time.Duration, error) {
		c := make(chan struct{}, 1)
		var work sync.WaitGroup
		for range goroutines {
			work.Go(func() {
				for range n / goroutines {
					<-c
					c <- struct{}{}
				}
			})
		}
		time.Sleep(2 * time.Millisecond)
		begin := time.Now()
		c <- struct{}{}
		work.Wait()
		return time.Since(begin), nil
	}
}

// handOver lets goroutines lock the same key. The clock runs from when all of them wait.
func handOver(c *coord.Coordinator, key string, goroutines int) func(context.Context, int) (time.Duration, error) {
	return func(ctx context.Context, n int) (time.Duration, error) {
		first, err := c.Lock(ctx, key)
		if err != nil {
			return 0, err
		}
		errs := make([]error, goroutines)
		var work sync.WaitGroup
		for i := range errs {
			work.Go(func() {
				for range n / goroutines {
					if errs[i] = pair(ctx, c, key); errs[i] != nil {
						return
					}
				}
			})
		}
		for c.Stats().Waiting < goroutines && ctx.Err() == nil {
			time.Sleep(100 * time.Microsecond)
		}
		begin := time.Now()
		err = first.Unlock()
		work.Wait()
		return time.Since(begin), errors.Join(append(errs, err)...)
	}
}
