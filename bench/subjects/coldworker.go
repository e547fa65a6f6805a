package subjects

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/coord"
)

var coldTasks = harness.NewTask("cold", runCold)

// coldTask tells a worker to compare Lock with SET.
type coldTask struct {
	Blocks int `json:"blocks"`
	Calls  int `json:"calls"` // per block
}

// coldResult is what the worker found.
type coldResult struct {
	Ping, Set, Lock, Unlock stats.Latency
	Ratios                  []float64 // of the medians, by block
	Procs                   int

	LockCalls, UnlockCalls, OtherCalls int64 // of the arbiter, by Stats, that succeeded; Other: renew and verify
	Commands, Trips                    int64 // of Holdfast's client
	Unaccounted                        int64 // commands that are none of these, failed or not
	Waited                             int64 // commands sent while Lock ran
	InUnlock                           int64 // commands sent while Unlock ran
	Failed                             int64
	Failure                            string // the first

	// Mean execution time in the server, and what the caller's process uses, of each alone.
	ServerPing, ServerSet, ServerLock, ServerUnlock time.Duration
	UsedPing, UsedSet, UsedLock, UsedUnlock         stats.Effort
}

// coldRun is the two sides of the comparison, in one process and with the same settings of the
// client library.
type coldRun struct {
	c      *coord.Coordinator
	count  *harness.Counter // of c's client
	bare   *redis.Client
	simple *harness.Counter // of bare
	prefix string
	keys   int

	ping, set, lock, unlock []time.Duration
	waited, inUnlock        int64
}

// perms are the orders of the three calls. Each follows each other one equally often.
var perms = [][3]int{{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}}

func runCold(ctx context.Context, h *harness.Host, t coldTask) (_ *coldResult, err error) {
	r := coldRun{prefix: h.Namespace}
	r.bare, r.simple = bareClient(h)
	var failed rivals.Failures
	if r.c, r.count, err = startNode(h, 0, &coord.Options{Namespace: h.Namespace, Trace: failed.Trace()}); err != nil {
		return nil, err
	}

	for range 10 { // connections, scripts, pools
		if err := r.batch(ctx, 16); err != nil {
			return nil, err
		}
	}
	r.ping, r.set, r.lock, r.unlock, r.waited, r.inUnlock = nil, nil, nil, nil, 0, 0
	res := coldResult{Procs: runtime.GOMAXPROCS(0)}
	before, commands, trips := r.c.Stats(), r.count.Commands.Load(), r.count.Trips.Load()
	for block := range t.Blocks {
		h.At(block, t.Blocks)
		first := len(r.lock)
		for left := t.Calls; left > 0; left = t.Calls - (len(r.lock) - first) {
			if err := r.batch(ctx, left); err != nil {
				return nil, err
			}
		}
		res.Ratios = append(res.Ratios, stats.Ratio(stats.Median(r.lock[first:]), stats.Median(r.set[first:])))
	}
	after := r.c.Stats()
	res.Commands, res.Trips = r.count.Commands.Load()-commands, r.count.Trips.Load()-trips
	for op, n := range after.Calls {
		calls := int64(n - before.Calls[op])
		bad := int64(after.Failed[op] - before.Failed[op])
		res.Failed += bad
		res.Unaccounted -= calls
		switch op {
		case coord.OpLock:
			res.LockCalls = calls - bad
		case coord.OpUnlock:
			res.UnlockCalls = calls - bad
		case coord.OpRenew, coord.OpVerify:
			res.OtherCalls += calls - bad
		default:
			res.Unaccounted += calls
		}
	}
	res.Failure = failed.String()
	// A renewal may be under way at either end: sent, but not counted as done.
	res.Unaccounted += res.Commands
	res.Waited, res.InUnlock = r.waited, r.inUnlock
	res.Ping, res.Set = stats.LatencyOf(r.ping), stats.LatencyOf(r.set)
	res.Lock, res.Unlock = stats.LatencyOf(r.lock), stats.LatencyOf(r.unlock)
	return &res, r.inServer(ctx, &res)
}

// batch makes at most n measured calls of each kind, and then waits until all locks have been given
// back.
func (r *coldRun) batch(ctx context.Context, n int) error {
	for range 3 { // after the pause
		if err := r.bare.Ping(ctx).Err(); err != nil {
			return err
		}
	}
	begin := time.Now()
	for i := 0; i < n && time.Since(begin) < coldBatch; i++ {
		for _, what := range perms[len(r.lock)%len(perms)] {
			if err := r.call(ctx, what); err != nil {
				return err
			}
		}
	}
	return r.settled(ctx)
}

// call makes one measured call.
func (r *coldRun) call(ctx context.Context, what int) error {
	switch what {
	case 0:
		begin := time.Now()
		err := r.bare.Ping(ctx).Err()
		r.ping = append(r.ping, time.Since(begin))
		return err
	case 1:
		key := r.key("set")
		begin := time.Now()
		ok, err := r.bare.SetNX(ctx, key, "value", rivals.Expiry+time.Millisecond).Result() // not whole seconds, or it would say EX
		r.set = append(r.set, time.Since(begin))
		if err == nil && !ok {
			err = fmt.Errorf("%s was there already", key)
		}
		return err
	}
	key := r.key("lock")
	sent := r.count.Commands.Load()
	begin := time.Now()
	l, err := r.c.Lock(ctx, key)
	r.lock = append(r.lock, time.Since(begin))
	locked := r.count.Commands.Load()
	r.waited += locked - sent
	if err != nil {
		return err
	}
	begin = time.Now()
	err = l.Unlock()
	r.unlock = append(r.unlock, time.Since(begin))
	r.inUnlock += r.count.Commands.Load() - locked
	return err
}

func (r *coldRun) key(kind string) string {
	r.keys++
	return fmt.Sprintf("%s:%s:%08d", r.prefix, kind, r.keys)
}

// settled waits until every lock has been given back.
func (r *coldRun) settled(ctx context.Context) error { return givenBack(ctx, r.c, time.Millisecond) }

// inServer finds out how long the server executes each command. Locks are taken here without being
// given back at once, so that the statistics of EVALSHA are about one script at a time.
func (r *coldRun) inServer(ctx context.Context, res *coldResult) error {
	const calls = 300
	mean := func(command string, f func() error) (time.Duration, error) {
		before, err := harness.CommandStats(ctx, r.bare, command)
		if err != nil {
			return 0, err
		}
		if err := f(); err != nil {
			return 0, err
		}
		after, err := harness.CommandStats(ctx, r.bare, command)
		return after.Since(before).Mean(), err
	}
	times := func(what func() error) func() error {
		return func() error {
			for range calls {
				if err := what(); err != nil {
					return err
				}
			}
			return nil
		}
	}
	var locks []coord.Lock
	for _, m := range []struct {
		to      *time.Duration
		used    *stats.Effort
		command string
		f       func() error
	}{
		{&res.ServerPing, &res.UsedPing, "ping", times(func() error { return r.call(ctx, 0) })},
		{&res.ServerSet, &res.UsedSet, "set", times(func() error { return r.call(ctx, 1) })},
		{&res.ServerLock, &res.UsedLock, "evalsha", times(func() error {
			l, err := r.c.Lock(ctx, r.key("server"))
			locks = append(locks, l)
			return err
		})},
		{&res.ServerUnlock, &res.UsedUnlock, "evalsha", func() error {
			for _, l := range locks {
				if err := l.Unlock(); err != nil {
					return err
				}
			}
			return r.settled(ctx)
		}},
	} {
		var err error
		if *m.to, err = mean(m.command, func() error {
			meter := harness.NewMeter(r.simple, r.count)
			err := m.f()
			*m.used = meter.Read(calls)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}
