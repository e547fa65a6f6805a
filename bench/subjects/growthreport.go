package subjects

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
)

func (t *growthTotal) result() report.Result {
	s := t.sizes
	r := report.Result{
		Title: fmt.Sprintf("GROWTH: what a lock costs over 1 to %s keys, 1 to %s goroutines, 1 to %d processes, and any rate; %d and %d rounds, by turns",
			figures.Thousands(int64(s.keys)), figures.Thousands(int64(s.waiters)), s.processes, s.blocks, s.rounds),
		Table:   [][]string{{"", "of", "median", "(min..max)", "to the first"}},
		Figures: t.figures(), Measured: t.teams.Measured,
		Notes: []string{
			"keys: nanoseconds of a pair of Lock and Unlock of a node's own keys, in random order; its floor: of a map of mutexes, which never forgets a key",
			"held: the same of 1,000 other keys, while so many are held; bytes: of heap per key held, the caller's Lock included, and after Unlock",
			"goroutines: nanoseconds of a hand-over among so many (of 1: of a pair, as there is nobody to hand over to); its floor: of a token in a channel",
			"rows: nanoseconds of a Lock at Redis, without a cluster, while so many locks are held there; its floor: of SET NX PX meanwhile",
			"rise: what the greatest number costs in times of what the smallest does. No floor is flat, as caches are small, so the rise of",
			"a lock is judged in times of that of its floor, block by block: 1 is as flat as the machine allows",
			"processes: sections per second of " + stats.Number(float64(s.goroutines)) + " goroutines in all; shared: 1,000 keys by zipf, two round trips to a store in a section;",
			"once: an empty section, and each key is used once, by one of the processes: nothing is there to be kept",
			t.pinned, t.where,
		},
	}
	for _, c := range []struct {
		name string
		c    curve
	}{
		{"keys, ns", t.keys},
		{"  a map of mutexes, ns", t.mutexes},
		{"held, ns", t.held},
		{"  a map of mutexes, so many locked, ns", t.heldFloor},
		{"  bytes per key held", t.bytes},
		{"  bytes per key after Unlock", t.idle},
		{"goroutines, ns", t.waiters},
		{"  a token in a channel, ns", t.token},
		{"rows, ns", t.rows},
		{"  SET NX PX, ns", t.sets},
		{"processes, shared keys, sections/s", t.shared},
		{"  " + growthRivalName, t.sharedRival},
		{"processes, keys used once, sections/s", t.once},
		{"  " + growthRivalName, t.onceRival},
	} {
		r.Table = append(r.Table, c.c.rows(c.name)...)
	}
	r.Table = append(r.Table, []string{fmt.Sprintf("%d processes", s.processes), "locks/s", "commands/s", "", "round trips per process and period"})
	row := func(name string, x traffic) {
		r.Table = append(r.Table, []string{name, stats.Number(x.locks), stats.Number(x.commands), "", stats.Number(x.trips)})
	}
	for _, x := range t.rate {
		row("1,000 keys", x)
	}
	for _, x := range t.rateRival {
		row("  "+growthRivalName, x)
	}
	for _, x := range t.overKeys {
		row(figures.Thousands(int64(x.keys))+" keys", x)
	}
	if t.failed > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%s locks failed; one: %s", figures.Thousands(t.failed), t.failure))
	}
	most := t.sizes.processes
	r.Versus = []chart.Ratio{
		report.Against(fmt.Sprintf("%d processes, 1,000 keys by zipf, sections/s vs. %s", most, growthRivalName), stats.PerRound(t.shared[most], t.sharedRival[most])),
		report.Against(fmt.Sprintf("%d processes, each key used once, sections/s vs. %s", most, growthRivalName), stats.PerRound(t.once[most], t.onceRival[most])),
	}
	r.Claims = t.claims()
	return r
}

func (t *growthTotal) claims() []report.Claim {
	rise := func(limit float64, c, floor curve, what, name string) report.Claim {
		a, b := c.at()[0], c.last()
		ours, theirs := c.times(b, a), floor.times(b, a)
		return report.AtMost(limit, stats.Median(stats.PerRound(ours, theirs)), fmt.Sprintf("%s: rise from %s to %s (%s times), in times of that of %s (%s times)",
			what, figures.Thousands(int64(a)), figures.Thousands(int64(b)), stats.Number(stats.Median(ours)), name, stats.Number(stats.Median(theirs))))
	}
	most := t.sizes.processes
	worst := func(list []traffic) (trips, apart float64) {
		least := math.Inf(1)
		for _, x := range list {
			trips, least = max(trips, x.trips), min(least, x.trips)
		}
		return trips, trips - least
	}
	rateTrips, rateApart := worst(t.rate)
	keysTrips, keysApart := worst(t.overKeys)
	one := idlePeriod.Seconds() / t.sizes.window.Seconds() // a trip more or less falls into the window of a process
	fastest := slices.MaxFunc(t.rate, func(a, b traffic) int { return cmp.Compare(a.locks, b.locks) })
	return []report.Claim{
		rise(growthKeysRise, t.keys, t.mutexes, "an owner's pair, keys", "a map of mutexes"),
		rise(growthHeldRise, t.held, t.heldFloor, "an owner's pair, keys held meanwhile", "a map of mutexes"),
		rise(growthTurnRise, t.waiters, t.token, "hand-over, goroutines", "a token in a channel"),
		rise(growthRowsRise, t.rows, t.sets, "Lock at Redis, locks held there", "SET NX PX"),
		report.AtMost(idleTrips+one, rateTrips, fmt.Sprintf("round trips to Redis per process and renewal period at any rate, up to %s locks/s", stats.Number(fastest.locks))),
		report.AtMost(one, rateApart, "the same: the most at any rate less the least at any; one falls into the time or does not"),
		report.AtMost(idleTrips+one, keysTrips, fmt.Sprintf("round trips to Redis per process and renewal period over 1 to %s keys", figures.Thousands(int64(t.sizes.keys)))),
		report.AtMost(one, keysApart, "the same: the most over any number of keys less the least"),
		report.AtMost(heldBytes, stats.Median(t.bytes[t.bytes.last()]), "bytes per key held"),
		report.AtMost(heldLeft*heldBytes, math.Abs(stats.Median(t.idle[t.idle.last()])), "bytes per key after Unlock"),
		report.AtLeast(growthRival, stats.Median(stats.PerRound(t.shared[most], t.sharedRival[most])),
			fmt.Sprintf("sections per second of %d processes on shared keys, times those of %s", most, growthRivalName)),
		report.AtMost(0, float64(t.wrong), "times that two held a lock"),
		report.AtMost(0, float64(t.stale), "tokens not above the one before"),
		report.AtMost(0, float64(t.failed), "locks that failed"),
		report.AtMost(0, float64(t.lost), "locks lost while they were held"),
		report.AtMost(0, float64(t.other), "locks of an owner that were not from memory"),
	}
}

func (t *growthTotal) figures() []report.Figure {
	lines := func(name, title, about, x, y, unit string, yScale chart.Scale, series ...chart.Line) report.Figure {
		return report.Figure{Lines: &chart.Lines{
			Head: chart.Head{Name: "growth-" + name, Title: title, About: about},
			X:    chart.Axis{Label: x, Scale: chart.Log}, Y: chart.Axis{Label: y, Unit: unit, Scale: yScale}, Series: series,
		}}
	}
	sent := func(name string, kind chart.Kind, list []traffic) chart.Line {
		l := chart.Line{Name: name, Kind: kind}
		for _, x := range list {
			l.Points = append(l.Points, chart.Point{X: x.locks, Y: x.commands})
		}
		slices.SortFunc(l.Points, func(a, b chart.Point) int { return cmp.Compare(a.X, b.X) })
		return l
	}
	return []report.Figure{
		lines("keys", "What a lock costs, over keys",
			"One node, its own keys, in random order. The map of mutexes shows what the machine's caches cost anybody; it never forgets a key.",
			"keys", "Lock and Unlock", chart.Nanoseconds, chart.Linear,
			t.mutexes.line("a map of mutexes", chart.Floor), t.heldFloor.line("a map, so many locked", chart.Floor), t.keys.line("Holdfast, so many used", chart.Ours), t.held.line("so many held meanwhile", chart.Ours)),
		lines("goroutines", "What a turn costs, over goroutines that want the key",
			"One key of the node's own: from one goroutine to the next. With one there is nobody to hand over to.",
			"goroutines", "from one to the next", chart.Nanoseconds, chart.Linear,
			t.token.line("a token in a channel", chart.Floor), t.waiters.line("Holdfast", chart.Ours)),
		lines("rows", "What a lock costs at Redis, over locks held there", "Without a cluster, a key used once, one caller.",
			"locks held meanwhile", "Lock", chart.Nanoseconds, chart.Linear,
			t.sets.line("SET NX PX", chart.Rival), t.rows.line("Holdfast", chart.Ours)),
		lines("traffic", "What Redis is asked, over locks per second",
			fmt.Sprintf("%d processes in a cluster, 1,000 keys.", t.sizes.processes),
			"locks per second, of all processes", "commands per second", chart.Number, chart.Log,
			sent(growthRivalName, chart.Rival, t.rateRival), sent("Holdfast", chart.Ours, t.rate)),
		lines("processes", "What processes do together, over their number",
			"The same goroutines, spread over more processes. Shared: 1,000 keys by zipf, a section of two round trips to a store. Once: an empty section, each key used once.",
			"processes", "sections per second", chart.Number, chart.Log,
			t.sharedRival.line(growthRivalName+", shared", chart.Rival), t.onceRival.line(growthRivalName+", once", chart.Rival),
			t.shared.line("Holdfast, shared", chart.Ours), t.once.line("Holdfast, once", chart.Ours)),
		lines("memory", "What a key takes in memory, over keys held", "Heap per key of its owner, while it is held, and after it was unlocked.",
			"keys held", "bytes per key", "B", chart.Linear,
			t.idle.line("after Unlock", chart.Floor), t.bytes.line("held", chart.Ours)),
	}
}
