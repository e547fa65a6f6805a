package subjects

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/histogram"
)

// hotTask tells a worker to contend for a key, or for many. Without Duration it only opens the
// variant.
type hotTask struct {
	Variant    string        `json:"variant"`
	Key        string        `json:"key"`
	Goroutines int           `json:"goroutines"`
	Begin      time.Time     `json:"begin"` // the same for all workers
	Duration   time.Duration `json:"duration"`

	// For shared and zipf.
	Store  string `json:"store"`  // address: the critical section is a read and a write there; empty: it is empty
	Keys   int    `json:"keys"`   // more than 1: so many, by zipf(1.1); Key is what they begin with
	Server string `json:"server"` // how to connect to the variant's own
	Apart  string `json:"apart"`  // what is put after the worker's namespace

	Referees string  `json:"referees"` // for hot: file
	Rate     float64 `json:"rate"`     // for growth: locks per second of this process; 0: as many as it can
}

var hotTasks = harness.NewTask("hot", contendFor)

// hotResult is what one process did in one round.
type hotResult struct {
	stats.Effort
	Failed  int64               `json:"failed"`
	Failure string              `json:"failure"`
	Waits   histogram.Histogram `json:"waits"`

	// Of a cluster: calls of the arbiter, by operation, and what it is at the end.
	Calls map[string]int64 `json:"calls"`
	view
}

// view is what a process sees of its cluster: the partitions that it owns, and all nodes.
type view struct{ Owned, Nodes int }

func (v *view) of(c *coord.Coordinator) { *v = view{c.Stats().Owned, len(c.Nodes())} }

// settle is the time after a round in which what it left behind is given back. What is sent then
// counts as the round's.
const settle = 30 * time.Millisecond

type openVariant struct {
	rivals.Locker
	rivals.Variant
	count   *harness.Counter
	referee *harness.Referee
	number  int // its place in the list
}

// get opens a variant, with a client of its own, when it is first asked for.
func get(h *harness.Host, t hotTask) (*openVariant, error) {
	return harness.Kept(h, "variant "+t.Variant, func() (*openVariant, error) { return open(h, t) })
}

func open(h *harness.Host, t hotTask) (*openVariant, error) {
	v, i, err := rivals.FindVariant(t.Variant)
	if err != nil {
		return nil, err
	}
	client, count := harness.NewClient(h.Redis, t.Goroutines)
	e := rivals.Environment{Order: h.Order, Client: client, Server: t.Server, Goroutines: t.Goroutines, Count: count}
	e.Namespace += t.Apart
	l, err := v.Open(e)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	h.AtEndWithin(func(ctx context.Context) error { return errors.Join(l.Close(ctx), client.Close()) })
	open := &openVariant{Locker: l, Variant: v, count: count, number: i}
	if t.Referees != "" {
		all, err := harness.Kept(h, "referees", func() ([]harness.Referee, error) {
			all, unmap, err := harness.OpenReferees(t.Referees, len(rivals.Variants))
			if err == nil {
				h.AtEnd(unmap)
			}
			return all, err
		})
		if err != nil {
			return nil, err
		}
		open.referee = &all[i]
	}
	return open, nil
}

// contendFor contends from t.Begin on.
func contendFor(ctx context.Context, h *harness.Host, t hotTask) (*hotResult, error) {
	v, err := get(h, t)
	if err != nil {
		return nil, err
	}
	seen := new(hotResult)
	seen.see(v)
	if t.Duration == 0 {
		return seen, nil
	}
	db := storeOf(h, t.Store)
	keys := []string{t.Key}
	for i := 1; i < t.Keys; i++ {
		keys = append(keys, t.Key+"-"+strconv.Itoa(i))
	}
	parts := make([]hotResult, t.Goroutines+1)
	var all hotResult
	all.Effort = together(ctx, t.Begin, t.Duration, len(parts), func(ctx context.Context, i int) {
		if i == t.Goroutines { // without others it is to be idle
			<-ctx.Done()
			return
		}
		v.contend(ctx, keys, db, uint64(h.Process*10_000+i), &parts[i])
	}, v.count)
	all.see(v)
	for op := range all.Calls {
		all.Calls[op] -= seen.Calls[op]
	}
	all.add(parts)
	return &all, nil
}

// together lets goroutines begin when those of all other workers do, and returns when all have
// ended what the process has used since before, and for what the round has left behind.
func together(
	ctx context.Context, begin time.Time, d time.Duration, goroutines int, one func(ctx context.Context, i int), counters ...*harness.Counter,
) stats.Effort {
	used := harness.NewMeter(counters...)
	time.Sleep(time.Until(begin))
	ctx, cancel := context.WithDeadline(ctx, begin.Add(d))
	defer cancel()
	var work sync.WaitGroup
	for i := range goroutines {
		work.Go(func() { one(ctx, i) })
	}
	work.Wait()
	time.Sleep(settle)
	return used.Read(0)
}

// add adds what the goroutines of the process did.
func (r *hotResult) add(parts []hotResult) {
	for i := range parts {
		p := &parts[i]
		r.Sections += p.Sections
		r.Failed += p.Failed
		r.Failure = cmp.Or(r.Failure, p.Failure)
		r.Waits.Merge(&p.Waits)
	}
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

// see notes what the process sees of its cluster.
func (r *hotResult) see(v *openVariant) {
	h, ok := v.Locker.(*rivals.Holdfast)
	if !ok {
		return
	}
	s := h.C.Stats()
	r.view.of(h.C)
	r.Calls = make(map[string]int64)
	for op, n := range s.Calls {
		r.Calls[op.String()] = int64(n)
	}
	for path, n := range s.Granted {
		r.Calls["path "+path.String()] = int64(n)
	}
}

// contend is one goroutine: it locks and unlocks until ctx ends.
func (v *openVariant) contend(ctx context.Context, keys []string, db *harness.Store, who uint64, r *hotResult) {
	var begin time.Time
	var trouble error
	key := 0
	inside := func(fence uint64) {
		if db == nil {
			v.referee.Enter(who, fence)
			defer v.referee.Leave(who)
		}
		r.Waits.Record(time.Since(begin))
		if db != nil {
			if trouble = db.Increment(v.number, key, fence); trouble != nil {
				return
			}
		}
		r.Sections++
	}
	var zipf *rand.Zipf
	if len(keys) > 1 {
		zipf = rand.NewZipf(rand.New(rand.NewPCG(who, uint64(time.Now().UnixNano()))), zipfS, 1, uint64(len(keys)-1))
	}
	for {
		if zipf != nil {
			key = int(zipf.Uint64())
		}
		begin = time.Now()
		err := v.Section(ctx, keys[key], inside)
		if err == nil {
			err, trouble = trouble, nil
		}
		if err == nil {
			continue
		}
		if ctx.Err() != nil && !errors.Is(err, coord.ErrLost) {
			// A wait that the end of the round cuts off counts, as long as it was: otherwise a lock that
			// starves a caller would look good.
			r.Waits.Record(time.Since(begin))
			return
		}
		r.Failed++
		r.Failure = err.Error()
		time.Sleep(10 * time.Millisecond) // do not spin on a fault that stays
	}
}
