package subjects

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

var growthTasks = harness.NewTask("growth", grow)

// growthTask tells a worker to measure one cost with N of something. The worker is the only node of
// a cluster.
type growthTask struct {
	What string `json:"what"` // one of the constants
	N    int    `json:"n"`
	Runs int    `json:"runs"` // of what is measured
}

const (
	growthKeys        = "keys"         // a pair of Lock and Unlock, N keys of its own in random order
	growthMutexes     = "mutexes"      // the same of a map of mutexes
	growthHeld        = "held"         // a pair while N other keys of its own are held, and their memory
	growthHeldMutexes = "held mutexes" // the same of a map of mutexes, N others of which are locked
	growthWaiters     = "waiters"      // a hand-over among N goroutines
	growthToken       = "token"        // the same of a token in a channel
	growthRows        = "rows"         // a Lock at the arbiter, without a cluster, while N others are held there
)

// heldOthers are the keys that are locked and unlocked while others are held.
const heldOthers = 1000

// growthSeen is how many keys it takes to see in the heap what one takes.
const growthSeen = 1000

// keptKeys is how many keys an owner keeps for each of its partitions.
const keptKeys = 6

// growthResult is what the worker found.
type growthResult struct {
	Nanos float64 `json:"nanos"` // each
	Floor float64 `json:"floor"` // rows: of SET NX PX meanwhile
	Held  float64 `json:"held"`  // held: bytes per key
	Idle  float64 `json:"idle"`  // held: bytes per key after Unlock
	Lost  int64   `json:"lost"`  // held: locks
	Other int64   `json:"other"` // keys, waiters, held: locks that were not from memory
}

// growthRun stays from task to task.
type growthRun struct {
	own    *coord.Coordinator
	keys   []string // in random order
	next   int
	fresh  int // keys of rows that were used
	plain  *coord.Coordinator
	bare   *redis.Client
	prefix string
}

func grow(ctx context.Context, h *harness.Host, t growthTask) (*growthResult, error) {
	r, err := harness.Kept(h, "growth", func() (*growthRun, error) { return openGrowth(ctx, h) })
	if err != nil {
		return nil, err
	}
	before := r.own.Stats()
	res, err := r.measure(ctx, t)
	if err != nil {
		return nil, fmt.Errorf("%s, %d: %w", t.What, t.N, err)
	}
	_, res.Other = byPath(r.own, before, coord.PathOwn)
	return res, nil
}

func openGrowth(ctx context.Context, h *harness.Host) (_ *growthRun, err error) {
	r := &growthRun{prefix: h.Namespace}
	if r.own, _, err = startNode(h, heldGoroutines, rivals.ClusterOptions(h.Order)); err != nil {
		return nil, err
	}
	if r.plain, _, err = startNode(h, heldGoroutines, &coord.Options{Namespace: h.Namespace + "-plain"}); err != nil {
		return nil, err
	}
	r.bare, _ = bareClient(h)
	return r, awaitStats(ctx, r.own, 10*time.Millisecond, func(s coord.Stats) bool { return s.Owned == partitions })
}

func (r *growthRun) measure(ctx context.Context, t growthTask) (*growthResult, error) {
	var took time.Duration
	var err error
	switch t.What {
	case growthKeys:
		took, err = r.calm(ctx, r.pairs(t.N), t.Runs)
	case growthMutexes:
		took, err = r.calm(ctx, r.mutexes(t.N), t.Runs)
	case growthHeldMutexes:
		took, err = r.calm(ctx, r.heldMutexes(t.N), t.Runs)
	case growthWaiters:
		if t.N == 1 {
			took, err = timed(r.pairs(1))(ctx, t.Runs) // no other one to hand over to
			break
		}
		took, err = handOver(r.own, "waited-for", t.N)(ctx, t.Runs)
	case growthToken:
		took, err = token(t.N)(ctx, t.Runs)
	case growthHeld:
		return r.held(ctx, t)
	case growthRows:
		return r.rows(ctx, t)
	default:
		err = fmt.Errorf("no such cost")
	}
	return &growthResult{Nanos: float64(took) / float64(t.Runs)}, err
}

// calm measures without what the last measurement has left to the collector: a million keys are
// much to look at.
func (r *growthRun) calm(ctx context.Context, f func(context.Context, int) error, n int) (time.Duration, error) {
	runtime.GC()
	return timed(f)(ctx, n)
}

// some returns n keys. Their order is random, so that what they need is rarely in a cache where
// they are many.
func (r *growthRun) some(n int) []string {
	if len(r.keys) < n {
		r.keys = makeKeys("growth", n)
		rand.Shuffle(n, func(i, j int) { r.keys[i], r.keys[j] = r.keys[j], r.keys[i] })
	}
	return r.keys[:n]
}

func (r *growthRun) pairs(keys int) func(context.Context, int) error {
	list := r.some(keys)
	return func(ctx context.Context, n int) error {
		for range n {
			r.next++
			if err := pair(ctx, r.own, list[r.next%keys]); err != nil {
				return err
			}
		}
		return nil
	}
}

// mutexes is the floor of pairs.
func (r *growthRun) mutexes(keys int) func(context.Context, int) error {
	return r.inMap(r.mutexOf(r.some(keys)), r.some(keys))
}

// heldMutexes is the floor of held.
func (r *growthRun) heldMutexes(keys int) func(context.Context, int) error {
	all := r.mutexOf(r.some(keys))
	for _, m := range all {
		m.Lock()
	}
	others := makeKeys("other", heldOthers)
	for _, k := range others {
		all[k] = new(sync.Mutex)
	}
	return r.inMap(all, others)
}

func (r *growthRun) mutexOf(keys []string) map[string]*sync.Mutex {
	all := make(map[string]*sync.Mutex)
	for _, k := range keys {
		all[k] = new(sync.Mutex)
	}
	return all
}

func (r *growthRun) inMap(all map[string]*sync.Mutex, list []string) func(context.Context, int) error {
	return func(_ context.Context, n int) error {
		for range n {
			r.next++
			m := all[list[r.next%len(list)]]
			m.Lock()
			m.Unlock() //nolint:staticcheck // the pair is what is measured
		}
		return nil
	}
}

// held locks N keys, and sees what they take and what another pair costs meanwhile.
func (r *growthRun) held(ctx context.Context, t growthTask) (*growthResult, error) {
	keys, others := r.some(t.N), makeKeys("other", heldOthers)
	look := func() int64 { // of few keys the heap says nothing
		if t.N < growthSeen {
			return 0
		}
		return harness.Heap()
	}
	before := look()
	locks := make([]coord.Lock, len(keys))
	for i, k := range keys {
		var err error
		if locks[i], err = r.own.Lock(ctx, k); err != nil {
			return nil, err
		}
	}
	runtime.GC() // as calm does for the floor
	begin := time.Now()
	for i := range t.Runs {
		if err := pair(ctx, r.own, others[i%len(others)]); err != nil {
			return nil, err
		}
	}
	took := time.Since(begin)
	held := look()
	lost := int64(0)
	for i := range locks {
		switch err := locks[i].Unlock(); {
		case errors.Is(err, coord.ErrLost): // a machine that stands still for seconds loses them
			lost++
		case err != nil:
			return nil, err
		}
	}
	if err := awaitStats(ctx, r.own, 5*time.Millisecond, func(s coord.Stats) bool {
		return s.Locked == 0 && s.Kept <= keptKeys*partitions
	}); err != nil {
		return nil, err
	}
	after, n := look(), float64(t.N)
	return &growthResult{
		Nanos: float64(took) / float64(t.Runs), Held: float64(held-before) / n, Idle: float64(after-before) / n, Lost: lost,
	}, nil
}

// rows holds N keys at the arbiter, and sees what another Lock costs meanwhile, and a SET NX PX.
func (r *growthRun) rows(ctx context.Context, t growthTask) (_ *growthResult, err error) {
	h := heldRun{c: r.plain}
	if err := h.hold(ctx, "rows", t.N); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.unlock(ctx)) }()
	var locks, sets []time.Duration
	for i := range t.Runs {
		r.fresh++
		key := "fresh-" + strconv.Itoa(r.fresh)
		both := []func() error{
			func() error {
				begin := time.Now()
				l, err := r.plain.Lock(ctx, key)
				if err != nil {
					return err
				}
				locks = append(locks, time.Since(begin))
				return l.Unlock()
			},
			func() error {
				begin := time.Now()
				err := r.bare.SetNX(ctx, r.prefix+":"+key, "me", rivals.Expiry+time.Millisecond).Err()
				sets = append(sets, time.Since(begin))
				return errors.Join(err, r.bare.Del(ctx, r.prefix+":"+key).Err())
			},
		}
		for j := range both {
			if err := both[(i+j)%2](); err != nil {
				return nil, err
			}
		}
	}
	return &growthResult{Nanos: stats.Median(locks), Floor: stats.Median(sets)}, nil
}
