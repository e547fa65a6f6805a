package subjects

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/bench/harness"
)

var paceTasks = harness.NewTask("pace", pace)

// pace locks and unlocks at a rate, with a variant that was opened before. Each lock takes one of
// the keys at random or, if there are none, one that was never used.
func pace(ctx context.Context, h *harness.Host, t hotTask) (*hotResult, error) {
	v, err := get(h, t)
	if err != nil {
		return nil, err
	}
	time.Sleep(time.Until(t.Begin))
	commands, trips := v.count.Commands.Load(), v.count.Trips.Load()
	parts := make([]hotResult, t.Goroutines)
	var all hotResult
	together(ctx, t.Begin, t.Duration, len(parts), func(ctx context.Context, i int) { v.paced(ctx, t, h.Process*10_000+i, &parts[i]) })
	all.Commands, all.Trips = v.count.Commands.Load()-commands, v.count.Trips.Load()-trips
	all.add(parts)
	return &all, nil
}

// paced is one goroutine. What is late is not made up for: a rate that cannot be kept is one that
// was not kept.
func (v *openVariant) paced(ctx context.Context, t hotTask, who int, r *hotResult) {
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
