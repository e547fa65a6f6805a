package subjects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// forwardSizes: each block measures everything, in an order that changes.
type forwardSizes struct {
	blocks  int
	calls   int           // of each kind per block, by one caller
	callers int           // at the same time, of a key each
	round   time.Duration // for which they call, of locks and of the bare transport, per block
}

// What must hold of locks that another node grants.
const (
	forwardTCP   = 1.25    // times a round trip of one byte, at most
	forwardRedis = 0.5     // times SET NX PX and EVALSHA, at most
	forwardRate  = 500_000 // locks per second by many callers, at least;
	forwardBare  = 0.7     // or this part of what the transport does alone
)

// measureForward lets one process lock keys that the other one owns.
func measureForward(ctx context.Context, b *Run) (_ report.Result, err error) {
	s := b.Sizes.forward
	caller, owner, pinned, stop, err := b.StartPair(ctx, "forward", "the owner")
	defer func() { err = errors.Join(err, stop(err != nil)) }()
	if err != nil {
		return report.Result{}, err
	}
	a, err := forwardTasks.Do(owner, forwardTask{})
	if err != nil {
		return report.Result{}, err
	}
	a, err = forwardTasks.Do(caller, forwardTask{
		Echo: a.Echo, Peer: a.Peer, Blocks: s.blocks, Calls: s.calls, Callers: s.callers, Round: s.round,
	})
	if err != nil {
		return report.Result{}, err
	}
	return a.result(s, pinned), nil
}

func (r *forwardResult) result(s forwardSizes, pinned string) report.Result {
	row := func(name string, m, base []float64, l stats.Latency, used []stats.Effort) []string {
		cells := slices.Insert(stats.Cells(name, m, base, stats.Micros, used), 5, stats.Micros(l.P99))
		if used == nil {
			return cells[:6]
		}
		return cells
	}
	many := func(name, ratio string, rates stats.Spread, used []stats.Effort) []string {
		return slices.Concat([]string{name}, rates.Cells(), []string{ratio, "", ""}, stats.UsedPer(used))
	}
	locks, bare := stats.SpreadOf(r.Rates), stats.SpreadOf(r.Bare)
	part := stats.Median(stats.PerRound(r.Rates, r.Bare))
	// Either will do, so what counts is the one that is closer.
	reached := max(locks.Median/forwardRate, part/forwardBare)
	return report.Result{
		Rungs: []chart.Bar{
			report.Bar("one byte there and back by TCP", chart.Floor, r.TCP),
			report.TimesFloor(report.Bar("Lock and Unlock, another node's key", chart.Ours, r.Pair), r.Pair, r.TCP, "TCP"),
		},
		Versus: []chart.Ratio{report.Against("another node's key, time of a lock vs. SET NX PX and EVALSHA", stats.PerRound(r.Redis, r.Pair))},
		Title:  fmt.Sprintf("FORWARD: a lock whose owner is another process, and nothing is kept; %d blocks, by turns", s.blocks),
		Table: [][]string{
			append([]string{"one caller, microseconds", "p50", "(min..max)", "ratio", "(min..max)", "p99"}, stats.UsedHead...),
			row("TCP round trip of one byte", r.TCP, r.TCP, r.AllTCP, r.Used[forwardByte]),
			row("Lock", r.Lock, r.TCP, r.AllLock, nil),
			row("Lock and Unlock", r.Pair, r.TCP, r.AllPair, r.Used[forwardLock]),
			row("SET NX PX and EVALSHA", r.Redis, r.TCP, r.AllRedis, r.Used[forwardPair]),
			{fmt.Sprintf("%d callers, per second", s.callers)},
			many("requests, transport alone", "1", bare, r.Used[forwardAlone]),
			many("locks", stats.Number(part), locks, r.Used[forwardMany]),
		},
		Notes: []string{
			fmt.Sprintf("%s; GOMAXPROCS of the caller is %d", pinned, r.Procs),
			"p50: of each block, median of the blocks; ratio: to TCP, or to the transport alone, in each block",
			"CPU (nanoseconds) and allocations of the caller's process, commands and bytes to Redis: per operation, of rounds of one kind only",
			fmt.Sprintf("locks by path: forwarded %s, others %s", figures.Thousands(r.Forwarded), figures.Thousands(r.Other)),
		},
		Claims: []report.Claim{
			report.AtMost(forwardTCP, stats.Median(stats.PerRound(r.Lock, r.TCP)), "median Lock, times a round trip of one byte by TCP"),
			report.AtMost(forwardRedis, stats.Median(stats.PerRound(r.Pair, r.Redis)), "median Lock and Unlock, times SET NX PX and EVALSHA"),
			report.AtLeast(1, reached, fmt.Sprintf("%d callers: times %s locks/s, or times %v of the transport alone",
				s.callers, figures.Thousands(forwardRate), forwardBare)),
			report.AtMost(0, float64(r.Other), "locks that were not forwarded"),
		},
	}
}
