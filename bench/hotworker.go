package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/coord"
)

// hotTask tells a worker to contend for a key, or for many. Without Duration it only opens the variant.
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
}

// hotResult is what one process did in one round.
type hotResult struct {
	effort
	Failed  int64     `json:"failed"`
	Failure string    `json:"failure"`
	Waits   histogram `json:"waits"`

	// Of a cluster: calls of the arbiter, by operation, and what it is at the end.
	Calls map[string]int64 `json:"calls"`
	Owned int              `json:"owned"`
	Nodes int              `json:"nodes"`
}

// settle is the time after a round in which what it left behind is given back. What is sent then counts as the round's.
const settle = 30 * time.Millisecond

// hotWorker is the part of a worker process that stays from round to round.
type hotWorker struct {
	referees  []referee
	unmap     func() error
	open      map[string]*openVariant
	stores    map[string]*store
	pool      *pgxpool.Pool // for rows
	rowsCount *counter      // of the pool
	closers   []func() error
	growth    *growthRun
	load      *stallLoad
	modes     map[string]*openMode // by way
}

type openVariant struct {
	locker
	variant
	count   *counter
	close   func() error
	referee *referee
	number  int // its place in the list
}

// get opens a variant, with a client of its own, when it is first asked for.
func (h *hotWorker) get(o order, t hotTask) (*openVariant, error) {
	name := t.Variant
	if h.open == nil {
		h.open = make(map[string]*openVariant)
	}
	if v := h.open[name]; v != nil {
		return v, nil
	}
	if h.referees == nil && o.Referees != "" {
		var err error
		if h.referees, h.unmap, err = openReferees(o.Referees, len(variants)); err != nil {
			return nil, err
		}
	}
	v, i, err := findVariant(name)
	if err != nil {
		return nil, err
	}
	client, count := newClient(o.Redis, t.Goroutines)
	l, err := v.open(environment{
		client: client, redis: o.Redis, namespace: o.Namespace, server: t.Server, goroutines: t.Goroutines, count: count,
	})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	open := &openVariant{locker: l, variant: v, count: count, number: i, close: func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		return errors.Join(l.close(ctx), client.Close())
	}}
	if h.referees != nil {
		open.referee = &h.referees[i]
	}
	h.open[name] = open
	return open, nil
}

func (h *hotWorker) close() error {
	var errs []error
	for _, v := range h.open {
		errs = append(errs, v.close())
	}
	for _, s := range h.stores {
		s.close()
	}
	for _, f := range h.closers {
		errs = append(errs, f())
	}
	if h.unmap != nil {
		errs = append(errs, h.unmap())
	}
	return errors.Join(errs...)
}

// run contends from t.Begin on.
func (h *hotWorker) run(ctx context.Context, o order, t hotTask) (*hotResult, error) {
	v, err := h.get(o, t)
	if err != nil {
		return nil, err
	}
	if t.Duration == 0 {
		all := new(hotResult)
		all.see(v)
		return all, nil
	}
	var seen hotResult
	seen.see(v)
	db := h.store(t.Store)
	keys := []string{t.Key}
	for i := 1; i < t.Keys; i++ {
		keys = append(keys, t.Key+"-"+strconv.Itoa(i))
	}
	used := newMeter(v.count)
	time.Sleep(time.Until(t.Begin))
	round, cancel := context.WithDeadline(ctx, t.Begin.Add(t.Duration))
	defer cancel()
	parts := make([]hotResult, t.Goroutines)
	var wg sync.WaitGroup
	for i := range parts {
		who := uint64(o.Process*10_000 + i)
		wg.Go(func() { v.contend(round, keys, db, who, &parts[i]) })
	}
	wg.Wait()
	<-round.Done() // without goroutines it is to be idle
	time.Sleep(settle)
	all := hotResult{effort: used.read(0)}
	all.see(v)
	for op := range all.Calls {
		all.Calls[op] -= seen.Calls[op]
	}
	for _, p := range parts {
		all.Sections += p.Sections
		all.Failed += p.Failed
		if all.Failure == "" {
			all.Failure = p.Failure
		}
		all.Waits.merge(p.Waits)
	}
	return &all, nil
}

// store returns the pool of connections to a store, nil if there is none.
func (h *hotWorker) store(addr string) *store {
	if addr == "" {
		return nil
	}
	if h.stores == nil {
		h.stores = make(map[string]*store)
	}
	if h.stores[addr] == nil {
		h.stores[addr] = newStore(addr)
	}
	return h.stores[addr]
}

// see notes what the process sees of its cluster.
func (r *hotResult) see(v *openVariant) {
	h, ok := v.locker.(*holdfast)
	if !ok {
		return
	}
	s := h.c.Stats()
	r.Owned, r.Nodes, r.Calls = s.Owned, len(h.c.Nodes()), make(map[string]int64)
	for op, n := range s.Calls {
		r.Calls[op.String()] = int64(n)
	}
	for path, n := range s.Granted {
		r.Calls["path "+path.String()] = int64(n)
	}
}

// contend is one goroutine: it locks and unlocks until ctx ends.
func (v *openVariant) contend(ctx context.Context, keys []string, db *store, who uint64, r *hotResult) {
	var begin time.Time
	var trouble error
	key := 0
	inside := func(fence uint64) {
		if db == nil {
			v.referee.enter(who, fence)
			defer v.referee.leave(who)
		}
		r.Waits.record(time.Since(begin))
		if db != nil {
			if trouble = db.increment(v.number, key, fence); trouble != nil {
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
		err := v.section(ctx, keys[key], inside)
		if err == nil {
			err, trouble = trouble, nil
		}
		if err == nil {
			continue
		}
		if ctx.Err() != nil && !errors.Is(err, coord.ErrLost) {
			// A wait that the end of the round cuts off counts, as long as it was: otherwise a lock that starves a caller
			// would look good.
			r.Waits.record(time.Since(begin))
			return
		}
		r.Failed++
		r.Failure = err.Error()
		time.Sleep(10 * time.Millisecond) // do not spin on a fault that stays
	}
}
