package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// coldSizes: calls are made in batches. Between two batches everything is given back.
type coldSizes struct {
	blocks int // each has a ratio of its own: the spread
	calls  int // per block and kind
}

// coldBatch is how long keys are locked and unlocked in a row: less than they linger (5 ms), so that no release runs
// while something is measured.
const coldBatch = 4 * time.Millisecond

// coldRatio is what Lock may take, in times of a bare SET NX PX.
const coldRatio = 1.3

// measureCold compares Lock with a bare SET, call by call in one process.
func measureCold(ctx context.Context, b *bench) (_ result, err error) {
	w, pinned, undo, err := b.startPinned(ctx, "cold")
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, undo()) }()
	a, err := w.do(task{Cold: &coldTask{Blocks: b.sizes.cold.blocks, Calls: b.sizes.cold.calls}})
	if err := errors.Join(err, w.stop()); err != nil {
		return result{}, err
	}
	return a.Cold.result(pinned), nil
}

// startPinned starts a worker on a core of its own, if wanted and possible, and says what it pinned.
func (b *bench) startPinned(ctx context.Context, subject string) (w *worker, pinned string, undo func() error, err error) {
	start := func() error {
		w, err = b.start(ctx, subject, order{Process: 1})
		return err
	}
	undo = func() error { return nil }
	mine, its, pinned := b.twoCores()
	if pinned != "" {
		err = start()
		return w, pinned, undo, err
	}
	// The first core gets most of the machine's interrupts. The server, which is on every path, gets the other.
	pinned = fmt.Sprintf("pinned: the caller (the whole process) to core %d", mine)
	if b.pid != 0 {
		if undo, err = pin(b.pid, its); err != nil {
			return nil, "", nil, err
		}
		pinned += fmt.Sprintf(", redis-server (process %d) to core %d", b.pid, its)
	} else {
		pinned += "; the server is not ours, so it is not pinned"
	}
	if err := onCore(mine, start); err != nil {
		return nil, "", nil, errors.Join(err, undo())
	}
	return w, pinned, undo, nil
}

func (r *coldResult) result(pinned string) result {
	medianRatio := ratio(r.Lock.P50, r.Set.P50)
	row := func(name string, s latency, server time.Duration, used effort) []string {
		on := "-"
		if server > 0 {
			on = micros(float64(server))
		}
		per := func(x float64) string { return number(ratio(x, float64(used.Sections))) }
		return []string{
			name, micros(s.P50), micros(s.P99), micros(s.P999), micros(s.Max), number(ratio(s.P50, r.Set.P50)), number(ratio(s.P99, r.Set.P99)), on,
			per(used.CPU.Seconds() * 1e6), per(float64(used.Allocs)), per(float64(used.Commands)), per(float64(used.Bytes)),
		}
	}
	perLock := ratio(float64(r.LockCalls), float64(r.Lock.N))
	perUnlock := ratio(float64(r.UnlockCalls), float64(r.Lock.N))
	var times []float64 // a Lock is a script that checks more, so it takes longer
	for _, x := range r.Ratios {
		times = append(times, 1/x)
	}
	return result{
		rungs: []chart.Bar{
			{Name: "PING at Redis", Kind: chart.Floor, Value: r.Ping.P50},
			{Name: "SET NX PX alone, at Redis", Kind: chart.Rival, Value: r.Set.P50},
			{Name: "Lock, no cluster, a key used once", Kind: chart.Ours, Value: r.Lock.P50, Note: number(ratio(r.Lock.P50, r.Ping.P50)) + " times PING"},
			{Name: "Unlock, no cluster: Redis is told later", Kind: chart.Ours, Value: r.Unlock.P50},
		},
		versus: []chart.Ratio{against("a key used once, no cluster, time of Lock vs. SET NX PX alone", times)},
		title: fmt.Sprintf("COLD: one caller, %s keys that nobody else wants, each used once; PING, SET and Lock by turns, call by call",
			figures.Thousands(int64(r.Lock.N))),
		table: [][]string{
			{"microseconds", "p50", "p99", "p99.9", "max", "p50 / SET's", "p99 / SET's", "in the server", "CPU, caller", "allocations", "commands", "bytes"},
			row("PING (the floor)", r.Ping, r.ServerPing, r.UsedPing),
			row("SET key value NX PX", r.Set, r.ServerSet, r.UsedSet),
			row("Lock", r.Lock, r.ServerLock, r.UsedLock),
			row("Unlock", r.Unlock, r.ServerUnlock, r.UsedUnlock),
		},
		notes: []string{
			fmt.Sprintf("%s; GOMAXPROCS of the caller is %d", pinned, r.Procs),
			fmt.Sprintf("ratio of medians in %d blocks of %d calls: %v", len(r.Ratios), r.Lock.N/max(len(r.Ratios), 1), spreadOf(r.Ratios)),
			"CPU of the caller's process, allocations, commands and bytes: of each in a row of its own, with what it leaves to be done; the release is Unlock's",
			"in the server: the mean execution time by its own statistics; Unlock's is that of the release in the background",
			fmt.Sprintf("commands of Holdfast: %s in %s round trips; %s to lock, %s to unlock, %s to renew and verify",
				figures.Thousands(r.Commands), figures.Thousands(r.Trips), figures.Thousands(r.LockCalls), figures.Thousands(r.UnlockCalls), figures.Thousands(r.OtherCalls)),
			fmt.Sprintf("sent while Lock ran: %s, its own included; while Unlock ran: %s (a renewal or a release in the background)",
				figures.Thousands(r.Waited), figures.Thousands(r.InUnlock)),
			failedNote(r.Failed, r.Failure),
		},
		claims: []claim{
			atMost(coldRatio, medianRatio, "median Lock, times the median SET NX PX"),
			atMost(1, perLock, "commands per Lock, which waits for them"),
			atMost(1, perUnlock, "commands per Unlock, in the background"),
			// What is under way when the counting begins or ends is counted as sent, but not yet as done, or the other way.
			atMost(2, math.Abs(float64(r.Unaccounted)), "commands for anything but lock, unlock, renew, verify"),
			atMost(1, ratio(r.Unlock.P50, r.Ping.P50), "median Unlock, times the median PING: nobody waits"),
		},
	}
}
