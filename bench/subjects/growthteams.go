package subjects

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// growthTogether are the curves of shared keys, and of keys that are used once.
var growthTogether = map[string][2]string{
	rivals.ClusterVariant: {growthShared, growthOnce},
	growthRivalName:       {growthSharedRival, growthOnceRival},
}

// together measures what 1, 2, 4 and more processes do. On a machine of two cores they share one,
// and the other is that of Redis and the store: so more processes cannot do more, and what is lost
// is what it costs to be many. Where there are more, the kernel places them.
func (t *growthTotal) together(ctx context.Context, b *Run) error {
	s := t.sizes
	mine, its, why := b.TwoCores()
	if list, err := harness.Cores(); err == nil && len(list) > 2 {
		mine, its, why = -1, -1, "nothing is pinned: there are cores for all"
	}
	if err := b.PinServer(its); err != nil {
		return err
	}
	t.where = "processes: " + why
	if why == "" {
		also := ""
		if b.PID != 0 {
			also = " and redis-server"
		}
		t.where = fmt.Sprintf("processes: pinned to core %d, all of them; the store%s to core %d", mine, also, its)
	}
	b.Progress.Step("processes start", 0, 0)
	var last *contest // all teams are there at the same time, and take turns
	var all []*total
	teams := make(map[*total]*contest)
	for _, n := range upTo(s.Processes, 2) {
		last = &contest{b: b, subject: fmt.Sprintf("growth%d", n)}
		if err := last.start(ctx, n, harness.Placement{Callers: mine, Store: its, Servers: -1}, nil); err != nil {
			return err
		}
		crowd := Crowd{Processes: n, Goroutines: max(s.Goroutines/n, 1), Keys: 1000, Rounds: s.Rounds, Round: s.Round}
		once := crowd
		once.Keys = 0
		for _, name := range []string{rivals.ClusterVariant, growthRivalName} {
			for _, j := range []*job{{Crowd: crowd}, {Name: "once", Crowd: once, Paced: true}} {
				t, err := last.addNamed(ctx, name, j)
				if err != nil {
					return fmt.Errorf("%d processes: %w", n, err)
				}
				all, teams[t] = append(all, t), last
			}
		}
	}
	// All teams work on the same keys, and on keys that are used once.
	name := func(x *total) string { return fmt.Sprintf("%d processes: %s", x.job.Processes, x.Name) }
	if err := byTurns(ctx, b, s.Rounds, all, name, func(x *total, round int) error { return teams[x].round(ctx, x, round) }); err != nil {
		return err
	}
	for _, x := range all {
		ours, once := x.Name == rivals.ClusterVariant, x.job.Paced
		if ours {
			t.fails(x)
		}
		if once {
			t.add(growthTogether[x.Name][1], x.job.Processes, x.Rates...)
			continue
		}
		t.add(growthTogether[x.Name][0], x.job.Processes, x.Rates...)
		if ours {
			team := slices.DeleteFunc(slices.Clone(teams[x].totals), func(x *total) bool { return x.job.Paced })
			t.teams.Compare(contestants(team, func(x *total) string {
				return fmt.Sprintf("%s, %d processes, shared keys", x.Title(), x.job.Processes)
			}))
			if err := teams[x].judge(); err != nil {
				return err
			}
			t.stale += x.stale
		}
		t.wrong += x.wrong // the judge has one count for both jobs
	}
	return t.count(ctx, b, last)
}

// fails adds what has failed.
func (t *growthTotal) fails(m *total) {
	t.failed, t.failure = t.failed+m.sum.Failed, cmp.Or(t.failure, m.sum.Failure)
}

// count counts the commands at rates of locks of all processes together that grow, and over keys
// that do.
func (t *growthTotal) count(ctx context.Context, b *Run, x *contest) error {
	type step struct {
		to   *[]traffic
		name string
		rate float64
		keys int
	}
	var steps []step
	for _, rate := range []float64{10, 100, 1000, 10_000, 0} {
		steps = append(steps, step{&t.rate, rivals.ClusterVariant, rate, 1000})
		if rate != 10_000 { // it would not get there
			steps = append(steps, step{&t.rateRival, growthRivalName, rate, 1000})
		}
	}
	for _, n := range upTo(t.sizes.Keys, 1000) {
		steps = append(steps, step{&t.overKeys, rivals.ClusterVariant, 1000, n})
	}
	crowd := x.totals[0].job.Crowd
	crowd.Round = t.sizes.Window
	for i, s := range steps {
		keys := figures.Thousands(int64(s.keys)) + " keys"
		b.Progress.Step(fmt.Sprintf("commands of %s at %s locks/s, %s", s.name, stats.Number(s.rate), keys), i, len(steps))
		crowd.Keys = s.keys
		total, err := x.addNamed(ctx, s.name, &job{Name: "paced", Crowd: crowd, Paced: true, Rate: s.rate / float64(crowd.Processes)})
		if err == nil {
			err = x.round(ctx, total, 1)
		}
		if err != nil {
			return err
		}
		p := traffic{name: keys, locks: total.Rates[0], commands: float64(total.All.Commands) / crowd.Round.Seconds()}
		p.trips = float64(total.All.Trips) / float64(crowd.Processes) / crowd.Round.Seconds() * idlePeriod.Seconds()
		if total.Fenced {
			t.fails(total)
		} else {
			p.name = "  " + total.Name
		}
		*s.to = append(*s.to, p)
	}
	return nil
}
