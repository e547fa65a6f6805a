package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/bench/chart"
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
func measureForward(ctx context.Context, b *bench) (_ result, err error) {
	s := b.sizes.forward
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	caller, pinned, undo, err := b.startPinned(ctx, "forward")
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, undo()) }()
	ws := []*worker{caller}
	defer func() {
		if err != nil {
			cancel()
		}
		for _, w := range ws {
			err = errors.Join(err, w.stop())
		}
	}()
	var owner *worker
	start := func() error {
		owner, err = b.start(ctx, "forward", order{Process: 2})
		return err
	}
	_, its, why := b.twoCores()
	if why == "" {
		pinned += fmt.Sprintf(", the owner to core %d", its)
	}
	if err := placed(its, start); err != nil {
		return result{}, err
	}
	ws = append(ws, owner)
	a, err := owner.do(task{Forward: &forwardTask{}})
	if err != nil {
		return result{}, err
	}
	a, err = caller.do(task{Forward: &forwardTask{
		Echo: a.Forward.Echo, Peer: a.Forward.Peer, Blocks: s.blocks, Calls: s.calls, Callers: s.callers, Round: s.round,
	}})
	if err != nil {
		return result{}, err
	}
	return a.Forward.result(s, pinned), nil
}

func (r *forwardResult) result(s forwardSizes, pinned string) result {
	row := func(name string, m, base []float64, l latency, used []effort) []string {
		t, x := spreadOf(m), spreadOf(perRound(m, base))
		cells := []string{
			name, micros(t.median), micros(t.least) + ".." + micros(t.most), number(x.median), number(x.least) + ".." + number(x.most),
			micros(l.P99),
		}
		if used != nil {
			cells = append(cells, usedPer(used)...)
		}
		return cells
	}
	locks, bare := spreadOf(r.Rates), spreadOf(r.Bare)
	part := median(perRound(r.Rates, r.Bare))
	// Either will do, so what counts is the one that is closer.
	reached := max(locks.median/forwardRate, part/forwardBare)
	return result{
		rungs: []chart.Bar{
			bar("one byte there and back by TCP", chart.Floor, r.TCP),
			timesFloor(bar("Lock and Unlock, another node's key", chart.Ours, r.Pair), r.Pair, r.TCP, "TCP"),
		},
		versus: []chart.Ratio{against("another node's key, time of a lock vs. SET NX PX and EVALSHA", perRound(r.Redis, r.Pair))},
		title:  fmt.Sprintf("FORWARD: a lock whose owner is another process, and nothing is kept; %d blocks, by turns", s.blocks),
		table: [][]string{
			append([]string{"one caller, microseconds", "p50", "(min..max)", "ratio", "(min..max)", "p99"}, usedHead...),
			row("TCP round trip of one byte", r.TCP, r.TCP, r.AllTCP, r.Used[forwardByte]),
			row("Lock", r.Lock, r.TCP, r.AllLock, nil),
			row("Lock and Unlock", r.Pair, r.TCP, r.AllPair, r.Used[forwardLock]),
			row("SET NX PX and EVALSHA", r.Redis, r.TCP, r.AllRedis, r.Used[forwardPair]),
			{fmt.Sprintf("%d callers, per second", s.callers)},
			append([]string{"requests, transport alone", number(bare.median), number(bare.least) + ".." + number(bare.most), "1", "", ""},
				usedPer(r.Used[forwardAlone])...),
			append([]string{"locks", number(locks.median), number(locks.least) + ".." + number(locks.most), number(part), "", ""},
				usedPer(r.Used[forwardMany])...),
		},
		notes: []string{
			fmt.Sprintf("%s; GOMAXPROCS of the caller is %d", pinned, r.Procs),
			"p50: of each block, median of the blocks; ratio: to TCP, or to the transport alone, in each block",
			"CPU (nanoseconds) and allocations of the caller's process, commands and bytes to Redis: per operation, of rounds of one kind only",
			fmt.Sprintf("locks by path: forwarded %s, others %s", figures.Thousands(r.Forwarded), figures.Thousands(r.Other)),
		},
		claims: []claim{
			atMost(forwardTCP, median(perRound(r.Lock, r.TCP)), "median Lock, times a round trip of one byte by TCP"),
			atMost(forwardRedis, median(perRound(r.Pair, r.Redis)), "median Lock and Unlock, times SET NX PX and EVALSHA"),
			atLeast(1, reached, fmt.Sprintf("%d callers: times %s locks/s, or times %v of the transport alone",
				s.callers, figures.Thousands(forwardRate), forwardBare)),
			atMost(0, float64(r.Other), "locks that were not forwarded"),
		},
	}
}
