package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// hotTask tells a worker to contend for a key. Without Duration it only opens the variant.
type hotTask struct {
	Variant    string        `json:"variant"`
	Key        string        `json:"key"`
	Goroutines int           `json:"goroutines"`
	Begin      time.Time     `json:"begin"` // the same for all workers
	Duration   time.Duration `json:"duration"`
}

// hotResult is what one process did in one round.
type hotResult struct {
	Sections int64     `json:"sections"`
	Commands int64     `json:"commands"`
	Failed   int64     `json:"failed"`
	Failure  string    `json:"failure"`
	Waits    histogram `json:"waits"`
}

// settle is the time after a round in which what it left behind is given back. What is sent then counts as the round's.
const settle = 30 * time.Millisecond

// hotWorker is the part of a worker process that stays from round to round.
type hotWorker struct {
	referees []referee
	unmap    func() error
	open     map[string]*openVariant
}

type openVariant struct {
	locker
	variant
	count   *counter
	close   func() error
	referee *referee
}

// get opens a variant, with a client of its own, when it is first asked for.
func (h *hotWorker) get(o order, name string, goroutines int) (*openVariant, error) {
	if h.open == nil {
		h.open = make(map[string]*openVariant)
	}
	if v := h.open[name]; v != nil {
		return v, nil
	}
	if h.referees == nil {
		var err error
		if h.referees, h.unmap, err = openReferees(o.Referees, len(variants)); err != nil {
			return nil, err
		}
	}
	v, i, err := findVariant(name)
	if err != nil {
		return nil, err
	}
	client, count := newClient(o.Redis, goroutines)
	l, err := v.open(client, o.Namespace)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	h.open[name] = &openVariant{l, v, count, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		return errors.Join(l.close(ctx), client.Close())
	}, &h.referees[i]}
	return h.open[name], nil
}

func (h *hotWorker) close() error {
	var errs []error
	for _, v := range h.open {
		errs = append(errs, v.close())
	}
	if h.unmap != nil {
		errs = append(errs, h.unmap())
	}
	return errors.Join(errs...)
}

// run contends from t.Begin on.
func (h *hotWorker) run(ctx context.Context, o order, t hotTask) (*hotResult, error) {
	v, err := h.get(o, t.Variant, t.Goroutines)
	if err != nil || t.Duration == 0 {
		return &hotResult{}, err
	}
	before := v.count.commands.Load()
	time.Sleep(time.Until(t.Begin))
	round, cancel := context.WithDeadline(ctx, t.Begin.Add(t.Duration))
	defer cancel()
	parts := make([]hotResult, t.Goroutines)
	var wg sync.WaitGroup
	for i := range parts {
		who := uint64(o.Process*10_000 + i)
		wg.Go(func() { v.contend(round, t.Key, who, &parts[i]) })
	}
	wg.Wait()
	time.Sleep(settle)
	all := hotResult{Commands: v.count.commands.Load() - before}
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

// contend is one goroutine: it locks and unlocks until ctx ends.
func (v *openVariant) contend(ctx context.Context, key string, who uint64, r *hotResult) {
	var begin time.Time
	inside := func(fence uint64) {
		v.referee.enter(who, fence)
		r.Waits.record(time.Since(begin))
		r.Sections++
		v.referee.leave(who)
	}
	for {
		begin = time.Now()
		err := v.section(ctx, key, inside)
		if err == nil {
			continue
		}
		if ctx.Err() != nil && !errors.Is(err, coord.ErrLost) {
			// A wait that the end of the round cuts off counts, as long as it was: otherwise a lock that starves somebody
			// would look good.
			r.Waits.record(time.Since(begin))
			return
		}
		r.Failed++
		r.Failure = err.Error()
		time.Sleep(10 * time.Millisecond) // do not spin on a fault that stays
	}
}
