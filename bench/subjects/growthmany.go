package subjects

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// team is a cluster of so many processes. All teams are there at the same time, and take turns. The
// totals are Holdfast's and the rival's.
type team struct {
	contest
	n int
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
	var teams []*team
	for _, n := range upTo(s.Processes, 2) {
		x := &team{n: n, contest: contest{b: b, subject: fmt.Sprintf("growth%d", n)}}
		teams = append(teams, x)
		if err := x.start(ctx, n, harness.Placement{Callers: mine, Store: its, Servers: -1}, nil); err != nil {
			return err
		}
	}
	if err := inParallel(teams, func(x *team) error { return x.open(ctx, s) }); err != nil {
		return err
	}
	if err := t.scale(ctx, b, teams); err != nil {
		return err
	}
	if err := t.count(b, teams[len(teams)-1]); err != nil {
		return err
	}
	for _, x := range teams {
		ours := x.totals[0]
		t.stale, t.failed, t.failure = t.stale+ours.stale, t.failed+ours.sum.Failed, cmp.Or(t.failure, ours.sum.Failure)
	}
	return nil
}

func inParallel(teams []*team, f func(*team) error) error {
	var work errgroup.Group
	for _, x := range teams {
		work.Go(func() error { return f(x) })
	}
	return work.Wait()
}

// open opens both variants in all processes of the team.
func (x *team) open(ctx context.Context, s growthSizes) error {
	crowd := Crowd{Processes: x.n, Goroutines: max(s.Goroutines/x.n, 1), Keys: 1000, Rounds: s.Rounds, Round: s.Round}
	for _, name := range []string{rivals.ClusterVariant, growthRivalName} {
		_, number, err := rivals.FindVariant(name)
		if err != nil {
			return err
		}
		if _, err := x.add(ctx, number, &job{Crowd: crowd}); err != nil {
			return fmt.Errorf("%d processes: %w", x.n, err)
		}
	}
	return nil
}

// scale lets all teams work on the same keys, and on keys that are used once, by turns.
func (t *growthTotal) scale(ctx context.Context, b *Run, teams []*team) error {
	rounds := t.sizes.Rounds + 1
	done, all := 0, rounds*len(teams)*4
	for round := range rounds {
		for i := range teams {
			x := teams[(i+round)%len(teams)]
			for j := range x.totals {
				which := (j + round) % len(x.totals)
				total := x.totals[which]
				b.Progress.Step(fmt.Sprintf("%d processes: %s", x.n, total.Name), done, all)
				b.Settle(ctx)
				if err := x.round(ctx, total, round); err != nil {
					return fmt.Errorf("%d processes, %s: %w", x.n, total.Name, err)
				}
				p, err := x.pace(total, fmt.Sprintf("once-%d", round), 0, 0, t.sizes.Round)
				if err != nil {
					return err
				}
				done += 2
				if round == 0 {
					continue
				}
				t.add([]string{growthOnce, growthOnceRival}[which], x.n, p.locks)
			}
		}
	}
	for _, x := range teams {
		t.teams.Compare(contestants(x.totals, func(total *total) string {
			return fmt.Sprintf("%s, %d processes, shared keys", total.Title(), x.n)
		}))
		if err := x.judge(); err != nil {
			return err
		}
		for i, total := range x.totals {
			t.add([]string{growthShared, growthSharedRival}[i], x.n, total.Rates...)
			t.wrong += total.wrong
		}
	}
	return nil
}

// count counts the commands at rates of locks that grow, and over keys that do.
func (t *growthTotal) count(b *Run, x *team) error {
	rates := []float64{10, 100, 1000, 10_000, 0}
	keys := upTo(t.sizes.Keys, 1000)
	all := len(rates)*2 - 1 + len(keys)
	done := 0
	run := func(total *total, rate float64, keys int) (traffic, error) {
		b.Progress.Step(fmt.Sprintf("commands of %s at %s locks/s, %s keys", total.Name, stats.Number(rate), figures.Thousands(int64(keys))), done, all)
		done++
		return x.pace(total, "paced", keys, rate, t.sizes.Window)
	}
	for _, rate := range rates {
		p, err := run(x.totals[0], rate, 1000)
		if err != nil {
			return err
		}
		t.rate = append(t.rate, p)
		if rate == 10_000 { // it would not get there
			continue
		}
		if p, err = run(x.totals[1], rate, 1000); err != nil {
			return err
		}
		t.rateRival = append(t.rateRival, p)
	}
	for _, n := range keys {
		p, err := run(x.totals[0], 1000, n)
		if err != nil {
			return err
		}
		t.overKeys = append(t.overKeys, p)
	}
	return nil
}

// pace lets all processes of the team lock for a while, at a rate of all of them together.
func (x *team) pace(total *total, key string, keys int, rate float64, d time.Duration) (traffic, error) {
	task := x.task(total)
	task.Key, task.Job.Keys, task.Paced, task.Rate = key, keys, true, rate/float64(x.n)
	task.Begin, task.Duration = time.Now().Add(50*time.Millisecond), d
	answers, err := roundTasks.All(x.ws, task)
	if err != nil {
		return traffic{}, err
	}
	p := traffic{name: figures.Thousands(int64(keys)) + " keys"}
	if !total.Fenced {
		p.name = "  " + total.Name
	}
	var sum roundResult
	var commands, trips int64
	for _, a := range answers {
		sum.add(a)
		commands += a.Commands
		trips += a.Trips
	}
	total.sum.Failed, total.sum.Failure = total.sum.Failed+sum.Failed, cmp.Or(total.sum.Failure, sum.Failure)
	p.locks, p.commands = float64(sum.Sections)/d.Seconds(), float64(commands)/d.Seconds()
	p.trips = float64(trips) / float64(x.n) / d.Seconds() * idlePeriod.Seconds()
	return p, nil
}
