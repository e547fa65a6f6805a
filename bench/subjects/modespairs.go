package subjects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/stats"
)

// slicesPerRatio are the slices of one comparison, and warmSlices those that count for none, at the
// beginning.
const slicesPerRatio, warmSlices = 4, 4

// pairSlice is how long a slice is. Blocks of permits outlive two of them without use.
const pairSlice = 25 * time.Millisecond

// second reports whether a slice is the second way's.
func second(slice int) bool { return slice%slicesPerRatio == 1 || slice%slicesPerRatio == 2 }

var pairsTasks = harness.NewTask("modes-pairs", comparePairs)

// pairsTask tells a worker to do a job in two ways by turns.
type pairsTask struct {
	Ways   [2]roundTask // both are open
	Begin  time.Time
	Slices int
}

// pairsResult is a worker's sections and CPU time in each slice.
type pairsResult struct {
	Sections []int64         // that began in it
	CPU      []time.Duration // of the process
	Failure  string
}

func comparePairs(ctx context.Context, h *harness.Host, t pairsTask) (*pairsResult, error) {
	var ways [2]*opened
	for i := range ways {
		m, err := t.Ways[i].open(h)
		if err != nil {
			return nil, err
		}
		ways[i] = m
	}
	r := &pairsResult{Sections: make([]int64, t.Slices), CPU: make([]time.Duration, t.Slices)}
	var slice atomic.Int32 // t.Slices: it is over
	parts, errs := make([][]int64, t.Ways[0].Job.Goroutines), make([]error, t.Ways[0].Job.Goroutines)
	time.Sleep(time.Until(t.Begin))
	used := harness.SelfCPU()
	var work sync.WaitGroup
	for g := range parts {
		parts[g] = make([]int64, t.Slices)
		work.Go(func() {
			for at := slice.Load(); int(at) < t.Slices && errs[g] == nil; at = slice.Load() {
				way := ways[0]
				if second(int(at)) {
					way = ways[1]
				}
				errs[g] = way.loop(context.WithoutCancel(ctx), 1)
				parts[g][at]++
			}
		})
	}
	for i := range t.Slices {
		time.Sleep(time.Until(t.Begin.Add(time.Duration(i+1) * pairSlice)))
		slice.Store(int32(i + 1))
		now := harness.SelfCPU()
		r.CPU[i], used = now-used, now
	}
	work.Wait()
	for _, p := range parts {
		for i, n := range p {
			r.Sections[i] += n
		}
	}
	if err := errors.Join(errs...); err != nil {
		r.Failure = err.Error()
	}
	return r, nil
}

// pairs is the result of the comparison of two ways: of each four slices, or of all of them.
type pairs struct {
	rates []float64  // sections of the second way to those of the first
	costs []float64  // processor time per section, of the first way to the second's
	cpu   [2]float64 // of each way, per section, in nanoseconds
}

// inSlices compares ours with the floor of as many processes, and adds the result. It has to be
// called after rounds of both.
func (c *contest) inSlices(r *report.Result, name string) error {
	i := slices.IndexFunc(c.totals, func(t *total) bool { return t.floor && !t.Alone })
	if i < 0 {
		return nil
	}
	one, other := c.totals[0], c.totals[i]
	t := pairsTask{
		Ways: [2]roundTask{c.task(one), c.task(other)}, Begin: time.Now().Add(100 * time.Millisecond),
		Slices: warmSlices + c.job.Ratios*slicesPerRatio,
	}
	c.b.Progress.Step("in slices", 0, 1)
	answers, err := pairsTasks.All(c.ws, t)
	if err != nil {
		return err
	}
	all := pairsResult{Sections: make([]int64, t.Slices), CPU: make([]time.Duration, t.Slices)}
	for _, a := range answers {
		if a.Failure != "" {
			return fmt.Errorf("%s beside %s: %s", one.Name, other.Name, a.Failure)
		}
		for i := range all.Sections {
			all.Sections[i] += a.Sections[i]
			all.CPU[i] += a.CPU[i]
		}
	}
	p := pairsOf(all)
	rate, cost := stats.IntervalOf(p.rates), stats.IntervalOf(p.costs)
	r.Claims = append(r.Claims, report.AtMost(permitsLoss, rate.Median, name+": "+other.Name+", sections per second to it, in slices"))
	r.Notes = append(r.Notes, fmt.Sprintf(
		"%s, in %d comparisons of slices of %v by turns in the same processes: sections per second of %q are %s of its own, processor time per section %s of the other's "+
			"(%s and %s ns): medians, with the interval that has the median with 95 %%",
		name, len(p.rates), pairSlice, other.Name, rate, cost, stats.Number(p.cpu[0]), stats.Number(p.cpu[1])))
	return nil
}

// pairsOf compares the slices of two ways.
func pairsOf(all pairsResult) (p pairs) {
	var sections, cpu [2]float64
	for i := warmSlices; i < len(all.Sections); i += slicesPerRatio {
		var n, used [2]float64
		for k := i; k < i+slicesPerRatio; k++ {
			side := 0
			if second(k) {
				side = 1
			}
			n[side] += float64(all.Sections[k])
			used[side] += float64(all.CPU[k])
		}
		p.rates = append(p.rates, stats.Ratio(n[1], n[0]))
		p.costs = append(p.costs, stats.Ratio(used[0]*n[1], used[1]*n[0]))
		for side := range n {
			sections[side] += n[side]
			cpu[side] += used[side]
			p.cpu[side] = stats.Ratio(cpu[side], sections[side])
		}
	}
	return p
}
