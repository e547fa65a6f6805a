package subjects

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// coldSizes: calls are made in batches. Between two batches everything is given back.
type ColdSizes struct {
	Blocks int // each has a ratio of its own: the spread
	Calls  int // per block and kind
}

// coldBatch is how long keys are locked and unlocked in a row: less than they linger (5 ms), so
// that no release runs while something is measured.
const coldBatch = 4 * time.Millisecond

// coldRatio is what Lock may take, in times of a bare SET NX PX.
const coldRatio = 1.3

// measureCold compares Lock with a bare SET, call by call in one process.
func measureCold(ctx context.Context, b *Run) (_ report.Result, err error) {
	w, pinned, undo, err := b.StartPinned(ctx, "cold")
	if err != nil {
		return report.Result{}, err
	}
	defer func() { err = errors.Join(err, undo()) }()
	r, err := coldTasks.Do(w, coldTask{Blocks: b.Sizes.Cold.Blocks, Calls: b.Sizes.Cold.Calls})
	if err := errors.Join(err, w.Stop()); err != nil {
		return report.Result{}, err
	}
	return r.result(pinned), nil
}

func (r *coldResult) result(pinned string) report.Result {
	medianRatio := stats.Ratio(r.Lock.P50, r.Set.P50)
	row := func(name string, s stats.Latency, server time.Duration, used stats.Effort) []string {
		on := "-"
		if server > 0 {
			on = stats.Micros(float64(server))
		}
		per := func(x float64) string { return stats.Number(stats.Ratio(x, float64(used.Sections))) }
		return []string{
			name, stats.Micros(s.P50), stats.Micros(s.P99), stats.Micros(s.P999), stats.Micros(s.Max), stats.Number(stats.Ratio(s.P50, r.Set.P50)), stats.Number(stats.Ratio(s.P99, r.Set.P99)), on,
			per(used.CPU.Seconds() * 1e6), per(float64(used.Allocs)), per(float64(used.Commands)), per(float64(used.Bytes())),
		}
	}
	perLock := stats.Ratio(float64(r.LockCalls), float64(r.Lock.N))
	perUnlock := stats.Ratio(float64(r.UnlockCalls), float64(r.Lock.N))
	var times []float64 // a Lock is a script that checks more, so it takes longer
	for _, x := range r.Ratios {
		times = append(times, 1/x)
	}
	return report.Result{
		Rungs: []chart.Bar{
			{Name: "PING at Redis", Kind: chart.Floor, Value: r.Ping.P50},
			{Name: "SET NX PX alone, at Redis", Kind: chart.Rival, Value: r.Set.P50},
			{Name: "Lock, no cluster, a key used once", Kind: chart.Ours, Value: r.Lock.P50, Note: stats.Number(stats.Ratio(r.Lock.P50, r.Ping.P50)) + " times PING"},
			{Name: "Unlock, no cluster: Redis is told later", Kind: chart.Ours, Value: r.Unlock.P50},
		},
		Versus: []chart.Ratio{report.Against("a key used once, no cluster, time of Lock vs. SET NX PX alone", times)},
		Title: fmt.Sprintf("COLD: one caller, %s keys that nobody else wants, each used once; PING, SET and Lock by turns, call by call",
			figures.Thousands(int64(r.Lock.N))),
		Table: [][]string{
			{"microseconds", "p50", "p99", "p99.9", "max", "p50 / SET's", "p99 / SET's", "in the server", "CPU, caller", "allocations", "commands", "bytes"},
			row("PING (the floor)", r.Ping, r.ServerPing, r.UsedPing),
			row("SET key value NX PX", r.Set, r.ServerSet, r.UsedSet),
			row("Lock", r.Lock, r.ServerLock, r.UsedLock),
			row("Unlock", r.Unlock, r.ServerUnlock, r.UsedUnlock),
		},
		Notes: []string{
			fmt.Sprintf("%s; GOMAXPROCS of the caller is %d", pinned, r.Procs),
			fmt.Sprintf("ratio of medians in %d blocks of %d calls: %v", len(r.Ratios), r.Lock.N/max(len(r.Ratios), 1), stats.SpreadOf(r.Ratios)),
			"CPU of the caller's process, allocations, commands and bytes: of each in a row of its own, with what it leaves to be done; the release is Unlock's",
			"in the server: the mean execution time by its own statistics; Unlock's is that of the release in the background",
			fmt.Sprintf("commands of Holdfast: %s in %s round trips; %s to lock, %s to unlock, %s to renew and verify",
				figures.Thousands(r.Commands), figures.Thousands(r.Trips), figures.Thousands(r.LockCalls), figures.Thousands(r.UnlockCalls), figures.Thousands(r.OtherCalls)),
			fmt.Sprintf("sent while Lock ran: %s, its own included; while Unlock ran: %s (a renewal or a release in the background)",
				figures.Thousands(r.Waited), figures.Thousands(r.InUnlock)),
			rivals.FailedNote(r.Failed, r.Failure),
		},
		Claims: []report.Claim{
			report.AtMost(coldRatio, medianRatio, "median Lock, times the median SET NX PX"),
			report.AtMost(1, perLock, "commands per Lock, which waits for them"),
			report.AtMost(1, perUnlock, "commands per Unlock, in the background"),
			// What is under way when the counting begins or ends is counted as sent, but not yet as done, or
			// the other way.
			report.AtMost(2, math.Abs(float64(r.Unaccounted)), "commands for anything but lock, unlock, renew, verify"),
			report.AtMost(1, stats.Ratio(r.Unlock.P50, r.Ping.P50), "median Unlock, times the median PING: nobody waits"),
		},
	}
}
