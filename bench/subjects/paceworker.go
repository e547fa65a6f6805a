package subjects

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/bench/harness"
)

var paceTasks = harness.NewTask("pace", pace)

// paceTask tells a worker to lock and unlock at a rate.
type paceTask struct {
	Variant    string        `json:"variant"`
	Key        string        `json:"key"`  // what keys begin with
	Keys       int           `json:"keys"` // each lock takes one of them at random; 0: one that was never used
	Goroutines int           `json:"goroutines"`
	Rate       float64       `json:"rate"` // locks per second of this process; 0: as many as it can
	Begin      time.Time     `json:"begin"`
	Duration   time.Duration `json:"duration"`
}

// paceResult is what one process did.
type paceResult struct {
	Sections int64         `json:"sections"`
	Failed   int64         `json:"failed"`
	Failure  string        `json:"failure"`
	Commands int64         `json:"commands"`
	Trips    int64         `json:"trips"`
	Took     time.Duration `json:"took"`
}

// pace does it with a variant that was opened before.
func pace(ctx context.Context, h *harness.Host, t paceTask) (*paceResult, error) {
	v, err := get(h, hotTask{Variant: t.Variant, Goroutines: t.Goroutines})
	if err != nil {
		return nil, err
	}
	time.Sleep(time.Until(t.Begin))
	commands, trips, begin := v.count.Commands.Load(), v.count.Trips.Load(), time.Now()
	round, cancel := context.WithDeadline(ctx, t.Begin.Add(t.Duration))
	defer cancel()
	parts := make([]paceResult, t.Goroutines)
	var work sync.WaitGroup
	for i := range parts {
		work.Go(func() { v.paced(round, t, h.Process*10_000+i, &parts[i]) })
	}
	work.Wait()
	<-round.Done()
	all := paceResult{Took: time.Since(begin)}
	time.Sleep(settle)
	all.Commands, all.Trips = v.count.Commands.Load()-commands, v.count.Trips.Load()-trips
	for _, p := range parts {
		all.Sections += p.Sections
		all.Failed += p.Failed
		if p.Failure != "" {
			all.Failure = p.Failure
		}
	}
	return &all, nil
}

// paced is one goroutine. What is late is not made up for: a rate that cannot be kept is one that
// was not kept.
func (v *openVariant) paced(ctx context.Context, t paceTask, who int, r *paceResult) {
	every := time.Duration(0)
	if t.Rate > 0 {
		every = time.Duration(float64(time.Second) * float64(t.Goroutines) / t.Rate)
	}
	next := time.Now().Add(time.Duration(rand.Int64N(int64(every) + 1)))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := 0; ; i++ {
		if every > 0 {
			timer.Reset(time.Until(next))
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
			next = next.Add(every)
			if now := time.Now(); next.Before(now) {
				next = now
			}
		}
		key := t.Key + "-" + strconv.Itoa(who) + "-" + strconv.Itoa(i)
		if t.Keys > 0 {
			key = t.Key + "-" + strconv.Itoa(rand.IntN(t.Keys))
		}
		err := v.Section(ctx, key, func(uint64) {})
		switch {
		case err == nil:
			r.Sections++
		case ctx.Err() != nil:
			return
		default:
			r.Failed++
			r.Failure = err.Error()
			time.Sleep(10 * time.Millisecond) // do not spin on a fault that stays
		}
	}
}
