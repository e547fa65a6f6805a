package subjects

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// ColdSizes: calls are made in batches. Between two batches everything is given back.
type ColdSizes struct {
	Blocks int // each has a ratio of its own: the spread
	Calls  int // per block and kind
}

// coldBatch is how long keys are locked and unlocked in a row: less than they linger (5 ms), so
// that no release runs while something is measured.
const coldBatch = 4 * time.Millisecond

// coldRatio is the time that Lock may take, in times of a bare SET NX PX.
const coldRatio = 1.3

// Lanes of cold, and its other counts.
const (
	coldPing   = "PING (the floor)"
	coldSet    = "SET key value NX PX"
	coldLock   = "Lock"
	coldUnlock = "Unlock"

	coldLocks       = "locks that were made"
	coldCommands    = "commands of Holdfast's client"
	coldTrips       = "round trips of it"
	coldToLock      = "calls of the arbiter to lock, that succeeded"
	coldToUnlock    = "the same to unlock"
	coldToRenew     = "the same to renew and verify"
	coldFailed      = "calls that failed"
	coldUnaccounted = "commands that are none of these, failed or not"
	coldWaited      = "commands sent while Lock ran"
	coldInUnlock    = "commands sent while Unlock ran"
)

var coldTasks = newLanes("cold", openCold)

// openCold compares Lock with a bare SET, call by call in one process and with the same settings of
// the client library.
func openCold(_ context.Context, h *harness.Host, t ColdSizes, r *laneRun) error {
	bare, simple := bareClient(h)
	c, count, err := startNode(h, &coord.Options{Namespace: h.Namespace})
	if err != nil {
		return err
	}
	keys, did := 0, make(map[string]int64)
	key := func(kind string) string {
		keys++
		return fmt.Sprintf("%s:%s:%08d", h.Namespace, kind, keys)
	}
	counted := func(what string, f func() error) (ns float64, err error) {
		sent, begin := count.Commands.Load(), time.Now()
		err = f()
		took := time.Since(begin)
		did[what] += count.Commands.Load() - sent
		return float64(took), err
	}
	r.blocks, r.counters, r.admin, r.every = t.Blocks, []*harness.Counter{simple, count}, bare, coldBatch
	r.pause = func(ctx context.Context) error {
		err := givenBack(ctx, c, time.Millisecond)
		for range 3 { // the connection was at rest
			err = errors.Join(err, bare.Ping(ctx).Err())
		}
		return err
	}
	lane := func(name, command string, run runner) *lane {
		return r.add(&lane{laneResult: laneResult{Name: name}, group: "cold", calls: t.Calls, command: command, run: run})
	}
	lane(coldPing, "ping", single(func(ctx context.Context, _ int) error { return bare.Ping(ctx).Err() }))
	lane(coldSet, "set", func(ctx context.Context, _, _ int) (span, error) {
		key := key("set")
		return single(func(ctx context.Context, _ int) error { return rivals.SetOnly(ctx, bare, key) })(ctx, 0, 1)
	})
	lock, unlock := lane(coldLock, "evalsha", nil), lane(coldUnlock, "evalsha", nil)
	lock.run = func(ctx context.Context, _, _ int) (span, error) {
		var l coord.Lock
		key := key("lock")
		took, err := counted(coldWaited, func() (err error) { l, err = c.Lock(ctx, key); return err })
		if err != nil {
			return span{}, err
		}
		did[coldLocks]++
		back, err := counted(coldInUnlock, l.Unlock)
		unlock.note(back)
		return span{1, time.Duration(took)}, err
	}
	// Alone, locks are not given back at once, so that the statistics of EVALSHA are about one
	// script at a time.
	var held []coord.Lock
	lock.alone = single(func(ctx context.Context, _ int) error {
		l, err := c.Lock(ctx, key("server"))
		held = append(held, l)
		did[coldLocks]++
		return err
	})
	unlock.alone = single(func(ctx context.Context, _ int) error {
		l := held[0]
		if held = held[1:]; len(held) > 0 {
			return l.Unlock()
		}
		return errors.Join(l.Unlock(), givenBack(ctx, c, time.Millisecond))
	})
	before, commands, trips := c.Stats(), count.Commands.Load(), count.Trips.Load()
	r.done = func(res *lanesResult) {
		after := c.Stats()
		did[coldCommands], did[coldTrips] = count.Commands.Load()-commands, count.Trips.Load()-trips
		// A renewal may be under way at either end: sent, but not counted as done.
		did[coldUnaccounted] = did[coldCommands]
		for op, n := range after.Calls {
			calls := int64(n - before.Calls[op])
			bad := int64(after.Failed[op] - before.Failed[op])
			did[coldFailed] += bad
			switch op {
			case coord.OpLock:
				did[coldToLock] = calls - bad
			case coord.OpUnlock:
				did[coldToUnlock] = calls - bad
			case coord.OpRenew, coord.OpVerify:
				did[coldToRenew] += calls - bad
			default:
				continue
			}
			did[coldUnaccounted] -= calls
		}
		for what, n := range did {
			res.Facts[what] = float64(n)
		}
	}
	return nil
}

// measureCold compares Lock with a bare SET, call by call in one process.
func measureCold(ctx context.Context, b *Run) (report.Result, error) {
	ws, pinned, err := b.StartPinned(ctx, "cold")
	if err != nil {
		return report.Result{}, err
	}
	r, err := coldTasks.Do(ws[0], b.Sizes.Cold)
	if err != nil {
		return report.Result{}, err
	}
	ping, set, lock, unlock := r.lane(coldPing).All, r.lane(coldSet), r.lane(coldLock), r.lane(coldUnlock).All
	table := [][]string{{"microseconds", "p50", "p99", "p99.9", "max", "p50 / SET's", "p99 / SET's", "in the server",
		"CPU, caller", "allocations", "commands", "bytes"}}
	for _, l := range r.Lanes {
		t := l.tally()
		per := func(x float64) string { return stats.Number(t.Per(x)) }
		table = append(table, []string{
			l.Name, stats.Micros(l.All.P50), stats.Micros(l.All.P99), stats.Micros(l.All.P999), stats.Micros(l.All.Max),
			stats.Number(stats.Ratio(l.All.P50, set.All.P50)), stats.Number(stats.Ratio(l.All.P99, set.All.P99)), stats.Micros(stats.Median(l.InServer)),
			per(t.All.CPU.Seconds() * 1e6), per(float64(t.All.Allocs)), per(float64(t.All.Commands)), per(float64(t.All.Bytes())),
		})
	}
	n := func(what string) string { return stats.Number(r.Facts[what]) }
	ratios := stats.PerRound(lock.P50, set.P50)
	return report.Result{
		Rungs: []chart.Bar{
			{Name: "PING at Redis", Kind: chart.Floor, Value: ping.P50},
			{Name: "SET NX PX alone, at Redis", Kind: chart.Rival, Value: set.All.P50},
			{Name: "Lock, no cluster, a key used once", Kind: chart.Ours, Value: lock.All.P50, Note: stats.Number(stats.Ratio(lock.All.P50, ping.P50)) + " times PING"},
			{Name: "Unlock, no cluster: Redis is told later", Kind: chart.Ours, Value: unlock.P50},
		},
		Title: fmt.Sprintf("COLD: one caller, %s keys that nobody else wants, each used once; PING, SET and Lock by turns, call by call",
			figures.Thousands(int64(lock.All.N))),
		Table: table,
		Notes: []string{
			fmt.Sprintf("%s; GOMAXPROCS of the caller is %d", pinned, r.Procs),
			fmt.Sprintf("ratio of medians in %d blocks of %d calls: %v", len(ratios), b.Sizes.Cold.Calls, stats.SpreadOf(ratios)),
			"CPU of the caller's process, allocations, commands and bytes: of each in a row of its own, with what it leaves to be done; the release is Unlock's",
			"in the server: the mean execution time by its own statistics; Unlock's is that of the release in the background",
			fmt.Sprintf("commands of Holdfast: %s in %s round trips; %s to lock, %s to unlock, %s to renew and verify",
				n(coldCommands), n(coldTrips), n(coldToLock), n(coldToUnlock), n(coldToRenew)),
			fmt.Sprintf("sent while Lock ran: %s, its own included; while Unlock ran: %s (a renewal or a release in the background)", n(coldWaited), n(coldInUnlock)),
			rivals.FailedNote(int64(r.Facts[coldFailed])),
		},
		Claims: []report.Claim{
			report.AtMost(coldRatio, stats.Ratio(lock.All.P50, set.All.P50), "median Lock, times the median SET NX PX"),
			report.AtMost(1, stats.Ratio(r.Facts[coldToLock], r.Facts[coldLocks]), "commands per Lock, which waits for them"),
			report.AtMost(1, stats.Ratio(r.Facts[coldToUnlock], r.Facts[coldLocks]), "commands per Unlock, in the background"),
			// A command under way when the counting begins or ends is counted as sent, but not yet
			// as done, or the other way.
			report.AtMost(2, math.Abs(r.Facts[coldUnaccounted]), "commands for anything but lock, unlock, renew, verify"),
			report.AtMost(1, stats.Ratio(unlock.P50, ping.P50), "median Unlock, times the median PING: nobody waits"),
		},
	}, nil
}
