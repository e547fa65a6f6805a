package subjects

import (
	"cmp"
	"context"
	"fmt"
	"time"

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

// member is a total of a team.
type member struct {
	*team
	*total
	rival int // 1: it is the rival's
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
	var members []member
	for _, n := range upTo(s.Processes, 2) {
		x := &team{n: n, contest: contest{b: b, subject: fmt.Sprintf("growth%d", n)}}
		if err := x.start(ctx, n, harness.Placement{Callers: mine, Store: its, Servers: -1}, nil); err != nil {
			return err
		}
		crowd := Crowd{Processes: n, Goroutines: max(s.Goroutines/n, 1), Keys: 1000, Rounds: s.Rounds, Round: s.Round}
		for i, name := range []string{rivals.ClusterVariant, growthRivalName} {
			_, number, err := rivals.FindVariant(name)
			if err != nil {
				return err
			}
			total, err := x.add(ctx, number, &job{Crowd: crowd})
			if err != nil {
				return fmt.Errorf("%d processes: %w", n, err)
			}
			members = append(members, member{x, total, i})
		}
		teams = append(teams, x)
	}
	// All teams work on the same keys, and on keys that are used once.
	if err := byTurns(ctx, b, s.Rounds, members, func(m member) string { return fmt.Sprintf("%d processes: %s", m.n, m.Name) },
		func(m member, round int) error {
			if err := m.round(ctx, m.total, round); err != nil {
				return err
			}
			p, err := m.pace(m.total, fmt.Sprintf("once-%d", round), 0, 0, s.Round)
			if round > 0 {
				t.add([]string{growthOnce, growthOnceRival}[m.rival], m.n, p.locks)
			}
			return err
		}); err != nil {
		return err
	}
	if err := t.count(b, teams[len(teams)-1]); err != nil {
		return err
	}
	for _, x := range teams {
		t.teams.Compare(contestants(x.totals, func(total *total) string {
			return fmt.Sprintf("%s, %d processes, shared keys", total.Title(), x.n)
		}))
		if err := x.judge(); err != nil {
			return err
		}
	}
	for _, m := range members {
		t.add([]string{growthShared, growthSharedRival}[m.rival], m.n, m.Rates...)
		if t.wrong += m.wrong; m.rival == 0 {
			t.stale, t.failed, t.failure = t.stale+m.stale, t.failed+m.sum.Failed, cmp.Or(t.failure, m.sum.Failure)
		}
	}
	return nil
}

// count counts the commands at rates of locks that grow, and over keys that do.
func (t *growthTotal) count(b *Run, x *team) error {
	type step struct {
		to     *[]traffic
		locks  *total
		rate   float64
		number int // of keys
	}
	var steps []step
	for _, rate := range []float64{10, 100, 1000, 10_000, 0} {
		steps = append(steps, step{&t.rate, x.totals[0], rate, 1000})
		if rate != 10_000 { // it would not get there
			steps = append(steps, step{&t.rateRival, x.totals[1], rate, 1000})
		}
	}
	for _, n := range upTo(t.sizes.Keys, 1000) {
		steps = append(steps, step{&t.overKeys, x.totals[0], 1000, n})
	}
	for i, s := range steps {
		b.Progress.Step(fmt.Sprintf("commands of %s at %s locks/s, %s keys", s.locks.Name, stats.Number(s.rate), figures.Thousands(int64(s.number))), i, len(steps))
		p, err := x.pace(s.locks, "paced", s.number, s.rate, t.sizes.Window)
		if err != nil {
			return err
		}
		*s.to = append(*s.to, p)
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
