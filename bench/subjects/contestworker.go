package subjects

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/histogram"
)

// way is one way to do a job, of several that contend: it is described once, and the workers find
// it by its number.
type way struct {
	rivals.Variant
	floor bool // beside ways that are alone: it locks nothing
	reads bool // its locks are for reading
	open  func(p *place) (*opened, error)
}

// waysOf are all ways of a kind, in which no worker is told of one that it does not know.
func waysOf(kind string) (list []way) {
	if kind == "modes" {
		return modeWays
	}
	for _, v := range rivals.Variants {
		list = append(list, way{Variant: v, open: openContender})
	}
	return list
}

// roundTask tells a worker to do a job for a round. Without Duration it opens the way, if it is not
// open, and makes it ready.
type roundTask struct {
	Kind     string
	Way      int
	Job      job       // its goroutines are those of this process
	Server   string    // how to connect to the way's own
	Store    string    // address: the critical section is a read and a write there; empty: it is empty
	Referees string    // file; empty: there are none
	Key      string    // or the prefix of the keys
	Begin    time.Time // the same for all workers
	Duration time.Duration
}

var roundTasks = harness.NewTask("round", runRound)

// roundResult is one round of a process, or of one of its goroutines.
type roundResult struct {
	stats.Effort
	Failed  int64
	Failure string
	Waits   histogram.Histogram

	// Of a cluster: calls of the arbiter, by operation, and the process's view at the end.
	Calls map[string]int64
	view
}

// view is a process's view of its cluster: the partitions that it owns, and all nodes.
type view struct{ Owned, Nodes int }

func (v *view) of(c *coord.Coordinator) { *v = view{c.Stats().Owned, len(c.Nodes())} }

// place is where a way is opened: one process.
type place struct {
	rivals.Environment
	h *harness.Host
	*way
	t roundTask
}

// opened is a way that is open in a process. One of round and loop is set.
type opened struct {
	counters []*harness.Counter
	node     *coord.Coordinator              // that it locks with; nil: none
	batch    int                             // calls of loop timed at a time; 0: as the job says
	ready    func(ctx context.Context) error // nil: it always is

	// round returns the function that each goroutine runs until its context ends.
	round func(t roundTask) func(ctx context.Context, i int, r *roundResult)
	// loop locks and unlocks n times.
	loop func(ctx context.Context, n int) error
}

// open opens the way when it is first asked for.
func (t roundTask) open(h *harness.Host) (*opened, error) {
	w := &waysOf(t.Kind)[t.Way]
	return harness.Kept(h, t.Kind+" "+w.Name, func() (*opened, error) {
		p := &place{h: h, way: w, t: t}
		p.Order, p.Server, p.Goroutines = h.Order, t.Server, t.Job.Goroutines
		return w.open(p)
	})
}

// referee returns the way's, nil if there are none.
func (p *place) referee() (*harness.Referee, error) {
	if p.t.Referees == "" {
		return nil, nil
	}
	all, err := harness.Kept(p.h, "referees", func() ([]harness.Referee, error) {
		all, unmap, err := harness.OpenReferees(p.t.Referees, refereed)
		if err == nil {
			p.h.AtEnd(unmap)
		}
		return all, err
	})
	if err != nil {
		return nil, err
	}
	return &all[p.t.Way], nil
}

// settle is the time after a round in which its remaining locks are given back. Commands sent then
// count as the round's.
const settle = 30 * time.Millisecond

// runRound does the job from t.Begin on. Its goroutines begin when those of all other workers do.
// The process's usage counts from before that until settle is over.
func runRound(ctx context.Context, h *harness.Host, t roundTask) (*roundResult, error) {
	o, err := t.open(h)
	if err != nil {
		return nil, err
	}
	all := new(roundResult)
	before := all.see(o.node)
	if t.Duration == 0 {
		if o.ready == nil {
			return all, nil
		}
		return all, o.ready(ctx)
	}
	if t.Job.Procs > 0 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(t.Job.Procs))
	}
	one := func(ctx context.Context, _ int, r *roundResult) {
		r.loop(ctx, o.loop, cmp.Or(o.batch, t.Job.batch()))
	}
	if o.round != nil {
		one = o.round(t)
	}
	parts := make([]roundResult, t.Job.Goroutines)
	used := harness.NewMeter(o.counters...)
	time.Sleep(time.Until(t.Begin))
	ctx, cancel := context.WithDeadline(ctx, t.Begin.Add(t.Duration))
	defer cancel()
	var work sync.WaitGroup
	for i := range parts {
		work.Go(func() { one(ctx, i, &parts[i]) })
	}
	if len(parts) == 0 { // it is to be idle
		<-ctx.Done()
	}
	work.Wait()
	time.Sleep(settle)
	all.Effort = used.Read(0)
	all.see(o.node)
	for op := range all.Calls {
		all.Calls[op] -= before[op]
	}
	for i := range parts {
		all.add(&parts[i])
	}
	return all, nil
}

// add adds the result of another process or goroutine, but not its usage.
func (r *roundResult) add(p *roundResult) {
	r.Sections += p.Sections
	r.Failed += p.Failed
	r.Failure = cmp.Or(r.Failure, p.Failure)
	r.Waits.Merge(&p.Waits)
}

// fails notes a failure.
func (r *roundResult) fails(err error) {
	r.Failed++
	r.Failure = err.Error()
	time.Sleep(10 * time.Millisecond) // do not spin on a fault that stays
}

// see notes the process's view of its cluster, and returns its calls of the arbiter.
func (r *roundResult) see(c *coord.Coordinator) map[string]int64 {
	if c == nil {
		return nil
	}
	s := c.Stats()
	r.view.of(c)
	r.Calls = make(map[string]int64)
	for op, n := range s.Calls {
		r.Calls[op.String()] = int64(n)
	}
	for path, n := range s.Granted {
		r.Calls["path "+path.String()] = int64(n)
	}
	return r.Calls
}

// loopBatch is how many pairs of calls are timed at a time.
const loopBatch = 1000

func (j job) batch() int { return cmp.Or(j.Batch, loopBatch) }

// loop is one goroutine that locks and unlocks, with nothing in between, until ctx ends, and once
// at least: on a busy machine the round may be over when the goroutine begins.
func (r *roundResult) loop(ctx context.Context, loop func(context.Context, int) error, batch int) {
	for first := true; first || ctx.Err() == nil; first = false {
		begin := time.Now()
		if err := loop(context.WithoutCancel(ctx), batch); err != nil {
			r.Failed++
			r.Failure = err.Error()
			return
		}
		r.Sections += int64(batch)
		r.Waits.Record(time.Since(begin) / time.Duration(batch))
	}
}

// openVariant is a variant in one process.
type openVariant struct {
	*rivals.Locker
	rivals.Variant
	count *harness.Counter
}

// variantOf opens a variant, with a client of its own, when it is first asked for. Holdfast without
// a cluster has a namespace beside that of one.
func variantOf(h *harness.Host, name, server string, goroutines int) (*openVariant, error) {
	return harness.Kept(h, "variant "+name, func() (*openVariant, error) {
		v, _, err := rivals.FindVariant(name)
		if err != nil {
			return nil, err
		}
		client, count := harness.NewClient(h.Redis, goroutines)
		e := rivals.Environment{Order: h.Order, Client: client, Server: server, Goroutines: goroutines, Count: count}
		if name == rivals.PlainVariant {
			e.Namespace += "-alone"
		}
		l, err := v.Open(e)
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		h.AtEndWithin(func(ctx context.Context) error { return errors.Join(l.Close(ctx), client.Close()) })
		return &openVariant{l, v, count}, nil
	})
}

// openContender opens a variant that contends for a key, or for many.
func openContender(p *place) (*opened, error) {
	v, err := variantOf(p.h, p.Name, p.Server, p.Goroutines)
	if err != nil {
		return nil, err
	}
	referee, err := p.referee()
	if err != nil {
		return nil, err
	}
	return &opened{counters: []*harness.Counter{v.count}, node: v.Node, ready: v.Ready, round: func(t roundTask) func(context.Context, int, *roundResult) {
		db := storeOf(p.h, t.Store)
		keys := []string{t.Key}
		for i := 1; i < t.Job.Keys; i++ {
			keys = append(keys, t.Key+"-"+strconv.Itoa(i))
		}
		return func(ctx context.Context, i int, r *roundResult) {
			contender{v, keys, db, referee, t.Way, uint64(p.h.Process*10_000 + i)}.run(ctx, r)
		}
	}}, nil
}

// storeOf returns the pool of connections to a store, nil if there is none.
func storeOf(h *harness.Host, addr string) *harness.Store {
	if addr == "" {
		return nil
	}
	s, _ := harness.Kept(h, "store "+addr, func() (*harness.Store, error) {
		s := harness.NewStore(addr)
		h.AtEnd(func() error { s.Close(); return nil })
		return s, nil
	})
	return s
}

// zipfOver returns a source of numbers below n by zipf, 0 only if n is 1.
func zipfOver(n int, seed uint64) func() uint64 {
	if n <= 1 {
		return func() uint64 { return 0 }
	}
	return rand.NewZipf(rand.New(rand.NewPCG(seed, uint64(time.Now().UnixNano()))), zipfS, 1, uint64(n-1)).Uint64
}

// contender is one goroutine.
type contender struct {
	*openVariant
	keys    []string
	db      *harness.Store   // nil: the section is empty, and
	referee *harness.Referee // sees it
	number  int              // of the variant
	me      uint64
}

// run locks and unlocks until ctx ends.
func (c contender) run(ctx context.Context, r *roundResult) {
	var begin time.Time
	var trouble error
	key, next := 0, zipfOver(len(c.keys), c.me)
	inside := func(fence uint64) {
		if c.db == nil {
			c.referee.Enter(c.me, fence)
			defer c.referee.Leave(c.me)
		}
		r.Waits.Record(time.Since(begin))
		if c.db != nil {
			if trouble = c.db.Increment(c.number, key, fence); trouble != nil {
				return
			}
		}
		r.Sections++
	}
	for {
		key = int(next())
		begin = time.Now()
		err := c.Section(ctx, c.keys[key], inside)
		if err == nil {
			err, trouble = trouble, nil
		}
		if err == nil {
			continue
		}
		if ctx.Err() != nil && !errors.Is(err, coord.ErrLost) {
			// A wait that the end of the round cuts off counts, as long as it was: otherwise a lock
			// that starves a caller would look good.
			r.Waits.Record(time.Since(begin))
			return
		}
		r.fails(err)
	}
}
