package subjects

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/reexec"
)

// lane is one thing that a worker measures in blocks, by turns with the others of its subject: a
// way to lock, or a floor. It is described once, where the worker opens it; its result, and its row
// in a table, go by its name.
type lane struct {
	laneResult
	calls int // that are timed in a block, one after the other; 0: 1
	batch int // operations in each of them; 0: 1

	// nil: the run of another lane of its group notes the time of this one.
	run    runner
	alone  func(ctx context.Context, i, n int) (span, error) // instead of run where only this lane runs
	group  string                                            // lanes of one are timed by turns, call by call
	around func(f func() error) error                        // all that is measured of the lane; nil: nothing

	path     coord.Path         // of its locks' grants
	counters []*harness.Counter // of its connections; nil: those of all
	process  int                // its server's, with those that it has started; 0: redis-server, or none
	command  string             // redis-server is asked for its mean time
	samples  []float64
}

// A runner makes n operations. The first one has the number i in the block.
type runner = func(ctx context.Context, i, n int) (span, error)

// span is how long n operations took.
type span struct {
	n    int
	took time.Duration
}

// note adds the time of an operation, in nanoseconds, or another figure of one.
func (l *lane) note(x float64) { l.samples = append(l.samples, x) }

// laneResult is the result of a lane.
type laneResult struct {
	Name, Title          string // of its row; no title: the name
	Base                 string // the lane that it is beside; none: it has no row
	Rival, Redis, Served bool   // Redis: it sends commands there; Served: the CPU time of its server is known
	Stuck                int    // calls that did not return, and were given up

	P50      []float64     // by block: the median, in nanoseconds
	All      stats.Latency // of all blocks
	Rounds   []stats.Round
	InServer []float64 // mean execution time of its command there
}

// title names the row.
func (l *laneResult) title() string {
	if l.Title != "" {
		return l.Title
	}
	return l.Name
}

// times is the median of the blocks, in times of another lane's in the same block.
func (l *laneResult) times(other *laneResult) float64 {
	return stats.Median(stats.PerRound(l.P50, other.P50))
}

// rates are the operations per second, by block.
func (l *laneResult) rates() (list []float64) {
	for _, x := range l.P50 {
		list = append(list, float64(time.Second)/x)
	}
	return list
}

// tally returns the tally of the blocks.
func (l *laneResult) tally() *stats.Tally {
	t := new(stats.Tally)
	for _, r := range l.Rounds {
		t.Add(r)
	}
	if !l.Redis {
		t.Untold = append(t.Untold, stats.MeasureCommands)
	}
	if t.All.Sent == 0 {
		t.Untold = append(t.Untold, stats.MeasureBytes)
	}
	if !l.Served {
		t.Untold = append(t.Untold, stats.MeasureServer)
	}
	return t
}

// lanesResult is the results of all lanes.
type lanesResult struct {
	Lanes []*laneResult
	Procs int
	By    map[string]int64   // locks in the blocks, by path: "other" is one that a lane should not take
	Facts map[string]float64 // other figures, by name
}

// lane returns the result of a lane, an empty one if there is none.
func (r *lanesResult) lane(name string) *laneResult {
	if i := slices.IndexFunc(r.Lanes, func(l *laneResult) bool { return l.Name == name }); i >= 0 {
		return r.Lanes[i]
	}
	return new(laneResult)
}

// besideHead are the columns of beside.
func besideHead(what, median string) []string {
	return slices.Concat([]string{what, median, "(min..max)", "ratio", "(min..max)"}, stats.UsedHead)
}

// beside is a table of all lanes that have a base, in their order.
func (r *lanesResult) beside(number func(float64) string) (rows [][]string) {
	for _, l := range r.Lanes {
		if l.Base != "" {
			rows = append(rows, stats.Cells(l.title(), l.P50, r.lane(l.Base).P50, number, l.Rounds))
		}
	}
	return rows
}

// laneRun is all lanes of a worker.
type laneRun struct {
	lanes    []*lane
	blocks   int
	counters []*harness.Counter
	nodes    []*coord.Coordinator
	settle   time.Duration // before each group, for the remaining work of the last one
	admin    *redis.Client // asks for the CPU time of the lanes' server; nil: it is not asked

	// pause is called every so often between calls of a group, and at its end.
	pause func(ctx context.Context) error
	every time.Duration

	done    func(*lanesResult) // adds facts; nil: there are none
	closers []func() error     // the last one first
}

func (r *laneRun) add(l *lane) *lane {
	l.batch, l.calls = max(l.batch, 1), max(l.calls, 1)
	r.lanes = append(r.lanes, l)
	return l
}

// atEnd has f called when the task ends: a worker has one limit for all that it closes at its own
// end, and on a busy machine that is little for several.
func (r *laneRun) atEnd(f func(context.Context) error) {
	r.closers = append(r.closers, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), harness.CloseTime)
		defer cancel()
		return f(ctx)
	})
}

// newLanes adds a task for one worker: open describes the lanes, and all else is the same.
func newLanes[T any](name string, open func(context.Context, *harness.Host, T, *laneRun) error) reexec.Task[T, *lanesResult] {
	return harness.NewTask(name, func(ctx context.Context, h *harness.Host, t T) (_ *lanesResult, err error) {
		r := new(laneRun)
		defer func() {
			for _, f := range slices.Backward(r.closers) {
				err = errors.Join(err, f())
			}
		}()
		if err := open(ctx, h, t, r); err != nil {
			return nil, err
		}
		return r.measure(ctx, h)
	})
}

// measure measures all lanes in each block, in an order that changes. Block 0 does not count:
// connections are made in it, scripts loaded, pools filled.
func (r *laneRun) measure(ctx context.Context, h *harness.Host) (*lanesResult, error) {
	res := &lanesResult{Procs: runtime.GOMAXPROCS(0), By: make(map[string]int64), Facts: make(map[string]float64)}
	var groups [][]*lane
	for i, l := range r.lanes {
		if i > 0 && l.group != "" && l.group == r.lanes[i-1].group {
			groups[len(groups)-1] = append(groups[len(groups)-1], l)
		} else {
			groups = append(groups, []*lane{l})
		}
	}
	all := make([][]float64, len(r.lanes))
	for block := range r.blocks + 1 {
		for i := range groups {
			g := groups[(i+block)%len(groups)]
			h.At(block*len(groups)+i, (r.blocks+1)*len(groups))
			before := r.granted()
			f := func() error { return r.group(ctx, g, block > 0) }
			if around := g[0].around; around != nil {
				inner := f
				f = func() error { return around(inner) }
			}
			if err := f(); err != nil {
				return nil, fmt.Errorf("%s: %w", g[0].Name, err)
			}
			for path, n := range r.granted() {
				name := path.String()
				if path != g[0].path {
					name = "other"
				}
				if block > 0 {
					res.By[name] += n - before[path]
				}
			}
		}
		for i, l := range r.lanes {
			if block > 0 {
				all[i] = append(all[i], l.samples...)
			}
		}
	}
	for i, l := range r.lanes {
		l.All = stats.LatencyOf(all[i])
		res.Lanes = append(res.Lanes, &l.laneResult)
	}
	if r.done != nil {
		r.done(res)
	}
	return res, nil
}

// granted are the locks of all nodes so far.
func (r *laneRun) granted() map[coord.Path]int64 {
	all := make(map[coord.Path]int64)
	for _, c := range r.nodes {
		for path, n := range c.Stats().Granted {
			all[path] += int64(n)
		}
	}
	return all
}

// perms are the orders of three. Each follows each other one equally often.
var perms = [][3]int{{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}}

// group measures a lane and those that its run notes, or three that take turns call by call. The
// usage of each of the three shows when it is alone: a quarter of the calls is made again for that,
// and not timed.
func (r *laneRun) group(ctx context.Context, g []*lane, counts bool) error {
	if r.settle > 0 { // remaining work of the last lane must not fall into this one
		runtime.GC()
		time.Sleep(r.settle)
	}
	var three []*lane
	for _, l := range g {
		l.samples = nil
		if l.run != nil {
			three = append(three, l)
		}
	}
	byTurns, timed := len(three) == len(perms[0]), make([][]float64, len(g))
	if byTurns {
		for begin, i := time.Now(), 0; i < g[0].calls; i++ {
			for _, k := range perms[i%len(perms)] {
				if _, err := three[k].call(ctx, three[k].run, i); err != nil {
					return err
				}
			}
			if r.pause != nil && (time.Since(begin) >= r.every || i+1 == g[0].calls) {
				if err := r.pause(ctx); err != nil {
					return err
				}
				begin = time.Now()
			}
		}
		for i, l := range g {
			timed[i] = l.samples
		}
	}
	rounds := make([]stats.Round, len(g))
	for i, l := range g {
		var err error
		if rounds[i], err = r.alone(ctx, l, byTurns); err != nil {
			return err
		}
	}
	for i, l := range g {
		if byTurns {
			l.samples = timed[i]
		}
		if !counts {
			l.InServer = nil
			continue
		}
		one, round := stats.LatencyOf(l.samples), rounds[i]
		round.P50, round.P99, round.P999, round.Max = one.P50, one.P99, one.P999, one.Max
		l.P50, l.Rounds = append(l.P50, stats.Median(l.samples)), append(l.Rounds, round)
	}
	return nil
}

// call makes a call, and notes the time of each of its operations, unless the run has.
func (l *lane) call(ctx context.Context, run runner, i int) (int, error) {
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	s, err := run(ctx, i*l.batch, l.batch)
	if s.n > 0 {
		l.note(float64(s.took) / float64(s.n))
	}
	return s.n, err
}

// alone makes calls of one lane, and measures their usage.
func (r *laneRun) alone(ctx context.Context, l *lane, quarter bool) (round stats.Round, err error) {
	run, calls, counters := l.run, l.calls, l.counters
	if l.alone != nil {
		run = l.alone
	}
	if run == nil {
		return round, nil
	}
	if quarter {
		calls = max(calls/4, 1)
	}
	if counters == nil {
		counters = r.counters
	}
	before, err := r.look(ctx, l)
	if err != nil {
		return round, err
	}
	meter, begin, n := harness.NewMeter(counters...), time.Now(), 0
	for i := range calls {
		did, err := l.call(ctx, run, i)
		if err != nil {
			return round, err
		}
		n += did
	}
	round.Took = time.Since(begin)
	time.Sleep(r.settle)
	round.Effort = meter.Read(int64(n))
	after, err := r.look(ctx, l)
	round.Server = after.cpu - before.cpu
	if l.command != "" {
		l.InServer = append(l.InServer, float64(after.command.Since(before.command).Mean()))
	}
	return round, err
}

// inServers is the work of a lane's servers so far.
type inServers struct {
	cpu     time.Duration
	command harness.CommandStat
}

func (r *laneRun) look(ctx context.Context, l *lane) (s inServers, err error) {
	if l.process != 0 {
		s.cpu = harness.ProcessCPU(append(harness.Children(l.process), l.process))
	}
	if r.admin == nil {
		return s, nil
	}
	if l.Redis {
		redis, err := harness.ServerCPU(ctx, r.admin)
		if s.cpu += redis; err != nil {
			return s, err
		}
	}
	if l.command != "" {
		s.command, err = harness.CommandStats(ctx, r.admin, l.command)
	}
	return s, err
}

// timed is the run of operations that f makes all of.
func timed(f func(ctx context.Context, i, n int) error) runner {
	return func(ctx context.Context, i, n int) (span, error) {
		begin := time.Now()
		err := f(ctx, i, n)
		return span{n, time.Since(begin)}, err
	}
}

// single is timed of one operation.
func single(f func(ctx context.Context, i int) error) runner {
	return timed(func(ctx context.Context, i, _ int) error { return f(ctx, i) })
}

// startNode starts a coordinator with a client of its own, which last as long as the worker.
func startNode(h *harness.Host, o *coord.Options) (*coord.Coordinator, *harness.Counter, error) {
	client, count := harness.NewClient(h.Redis, 0)
	c, err := rivals.NewCoordinator(client, o)
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	h.AtEndWithin(func(ctx context.Context) error { return errors.Join(c.Close(ctx), client.Close()) })
	return c, count, nil
}

// onlyNode is startNode of a cluster that has no other node, when it owns all partitions.
func (r *laneRun) onlyNode(ctx context.Context, h *harness.Host) (*coord.Coordinator, *harness.Counter, error) {
	c, count, err := startNode(h, rivals.ClusterOptions(h.Order))
	if err != nil {
		return nil, nil, err
	}
	r.nodes = []*coord.Coordinator{c}
	return c, count, awaitStats(ctx, c, 10*time.Millisecond, func(s coord.Stats) bool { return s.Owned == partitions })
}

// bareClient returns a client that lasts as long as the worker.
func bareClient(h *harness.Host) (*redis.Client, *harness.Counter) {
	client, count := harness.NewClient(h.Redis, 0)
	h.AtEnd(client.Close)
	return client, count
}

// keysOf finds keys that the node owns, or that others do, of a cluster that has settled. A cluster
// that has lost a node, or its session, may have none.
func keysOf(c *coord.Coordinator, own bool, prefix string, n int) (keys []string, err error) {
	for i := range 1000 * (n + 1) {
		key := prefix + strconv.Itoa(i)
		if owner, ok := c.Owner(key); ok && owner.Self == own {
			keys = append(keys, key)
		}
		if len(keys) == n {
			return keys, nil
		}
	}
	return nil, fmt.Errorf("of %d keys with this node as owner: %v, %d were found", n, own, len(keys))
}

// givenBack waits until the arbiter has acknowledged the release of every lock. It looks as often
// as every says.
func givenBack(ctx context.Context, c *coord.Coordinator, every time.Duration) error {
	return awaitStats(ctx, c, every, func(s coord.Stats) bool {
		// A call that failed is counted, and made again. Each hold is released by one that did not
		// fail.
		return s.Locked == 0 && s.Kept == 0 && s.Calls[coord.OpUnlock]-s.Failed[coord.OpUnlock] >= s.Granted[coord.PathArbiter]
	})
}

// awaitStats returns when so reports true.
func awaitStats(ctx context.Context, c *coord.Coordinator, every time.Duration, so func(coord.Stats) bool) error {
	const limit = 30 * time.Second
	for begin := time.Now(); ; time.Sleep(every) {
		s := c.Stats()
		switch {
		case so(s):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Since(begin) > limit:
			s.Waits, s.Holds = coord.Histogram{}, coord.Histogram{}
			return fmt.Errorf("waited for %v in vain: %+v", limit, s)
		}
	}
}
