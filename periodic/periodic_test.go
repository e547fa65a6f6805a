package periodic_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/coordtest"
	"github.com/holdfast-go/holdfast/internal/crash"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/periodic"
)

func TestMain(m *testing.M) { leak.Main(m) }

var bubble = coordtest.Bubble

func start(t *testing.T, a fallback.Arbiter) *coord.Coordinator { return coordtest.Start(t, a, nil) }

// diary is the list of the runs.
type diary struct {
	t    *testing.T
	mu   sync.Mutex // protects the fields below
	runs []run
	work sync.WaitGroup
}

type run struct {
	periodic.Tick
	by string
	at time.Time
}

// join makes a process take part until ctx ends. Its clock is ahead by skew. Its machine is by, up
// to a slash.
func (d *diary) join(ctx context.Context, c *coord.Coordinator, by string, skew time.Duration, s periodic.Schedule, opts *periodic.Options,
	fn func(ctx context.Context, t periodic.Tick) error) {
	ctx = periodic.WithClock(ctx, func() time.Time { return time.Now().Add(skew) })
	machine, _, _ := strings.Cut(by, "/")
	ctx = periodic.WithMachine(ctx, machine)
	d.work.Go(func() {
		if err := periodic.Run(ctx, c, "report", s, opts, func(ctx context.Context, tick periodic.Tick) error {
			d.mu.Lock()
			d.runs = append(d.runs, run{tick, by, time.Now()})
			d.mu.Unlock()
			if fn != nil {
				return fn(ctx, tick)
			}
			return nil
		}); err != nil {
			d.t.Errorf("%s: %v", by, err)
		}
	})
}

// want looks at the runs so far: one per tick from first on, each at its time, but for early and
// late.
func (d *diary) want(first time.Time, every time.Duration, n int, early, late time.Duration) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.runs) != n {
		d.t.Errorf("%d runs, want %d", len(d.runs), n)
	}
	for i, r := range d.runs {
		due := first.Add(time.Duration(i) * every)
		if !r.Due.Equal(due) || r.Missed != 0 || r.Again || r.at.Before(due.Add(-early)) || r.at.After(due.Add(late)) {
			d.t.Errorf("run %d, by %s: %+v at %v, want it due at %v", i, r.by, r.Tick, r.at, due)
		}
		if i > 0 && r.Fence <= d.runs[i-1].Fence {
			d.t.Errorf("run %d: fence %d after %d", i, r.Fence, d.runs[i-1].Fence)
		}
	}
}

// Once per tick, though the job takes no time, and the clocks differ; one of them by an hour.
func TestRun_OncePerTick(t *testing.T) {
	for name, skews := range map[string][]time.Duration{
		"equal clocks":         {0, 0, 0, 0},
		"clocks apart":         {-400 * time.Millisecond, 0, 400 * time.Millisecond, 100 * time.Millisecond},
		"one an hour ahead":    {0, 10 * time.Millisecond, -10 * time.Millisecond, time.Hour},
		"one a year behind":    {0, 10 * time.Millisecond, -10 * time.Millisecond, -365 * 24 * time.Hour},
		"a period of a second": {-30 * time.Millisecond, 0, 30 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				d := &diary{t: t}
				ctx, cancel := context.WithCancel(t.Context())
				every := 10 * time.Second
				if len(skews) == 3 {
					every = time.Second
				}
				first := time.Now().Add(every)
				time.Sleep(every - 500*time.Millisecond)
				for i, skew := range skews {
					if skew.Abs() > time.Minute {
						continue
					}
					d.join(ctx, start(t, a), fmt.Sprint(i), skew, periodic.Every(every), nil, nil)
				}
				time.Sleep(every)
				for i, skew := range skews {
					if skew.Abs() > time.Minute { // when there is a record
						d.join(ctx, start(t, a), fmt.Sprint(i), skew, periodic.Every(every), nil, nil)
					}
				}
				time.Sleep(every * 19)
				cancel()
				d.work.Wait()
				d.want(first, every, 20, 400*time.Millisecond, 400*time.Millisecond)
			})
		})
	}
}

// A process that was the first one, with a wrong clock, does not have the say for ever.
func TestRun_AWrongFirstClockIsLeftBehind(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		d := &diary{t: t}
		wrong, stop := context.WithCancel(t.Context())
		d.join(wrong, start(t, a), "wrong", 5*time.Minute, periodic.Every(time.Minute), nil, nil)
		time.Sleep(2*time.Minute + time.Second)
		stop()
		d.work.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		d.join(ctx, start(t, a), "b", 0, periodic.Every(time.Minute), nil, nil)
		d.join(ctx, start(t, a), "c", 0, periodic.Every(time.Minute), nil, nil)
		time.Sleep(8 * time.Minute)
		cancel()
		d.work.Wait()
		last := d.runs[len(d.runs)-1]
		if last.at.Sub(last.Due).Abs() > time.Second {
			t.Errorf("the last run was at %v, due at %v; %d runs", last.at, last.Due, len(d.runs))
		}
		seen := make(map[time.Time]bool)
		for _, r := range d.runs {
			if seen[r.Due] {
				t.Errorf("%v was run twice", r.Due)
			}
			seen[r.Due] = true
		}
	})
}

// While a job takes longer than its period, ticks are missed, and the last one due is run at once.
func TestRun_NeverBesideItself(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		d := &diary{t: t}
		var mu sync.Mutex
		job := func(context.Context, periodic.Tick) error {
			if !mu.TryLock() {
				t.Error("beside itself")
			}
			defer mu.Unlock()
			time.Sleep(25 * time.Second)
			return errors.New("and it fails")
		}
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 3 {
			d.join(ctx, start(t, a), fmt.Sprint(i), 0, periodic.Every(10*time.Second), nil, job)
		}
		time.Sleep(2 * time.Minute)
		cancel()
		d.work.Wait()
		for i, r := range d.runs {
			if i > 0 && (r.Due.Sub(d.runs[i-1].Due) < 20*time.Second || r.Missed < 1 || r.at.Sub(r.Due) > 10*time.Second) {
				t.Errorf("run %d: %+v at %v after %+v", i, r.Tick, r.at, d.runs[i-1].Tick)
			}
		}
		if len(d.runs) < 4 {
			t.Errorf("%d runs", len(d.runs))
		}
	})
}

// A process crashes in the middle of a job.
func TestRun_ACrash(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint("again: ", again), func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				var out bytes.Buffer
				d := &diary{t: t}
				opts := &periodic.Options{Again: again, Logger: slog.New(slog.NewTextHandler(&out, nil))}
				cut := &crash.Arbiter{Memory: a}
				ctx, cancel := context.WithCancel(t.Context())
				first := time.Now().Add(time.Minute)
				d.join(ctx, start(t, cut), "crashes", 0, periodic.Every(time.Minute), opts, func(ctx context.Context, tick periodic.Tick) error {
					if tick.Due.Equal(first) {
						cut.Cut()
						<-ctx.Done()
						return context.Cause(ctx)
					}
					return nil
				})
				time.Sleep(time.Minute + time.Second)
				d.join(ctx, start(t, a), "other", 0, periodic.Every(time.Minute), opts, nil)
				time.Sleep(50 * time.Second)
				d.mu.Lock()
				if n := len(d.runs); n != map[bool]int{false: 1, true: 2}[again] {
					t.Errorf("%d runs of the first tick", n)
				} else if again && (d.runs[1].Tick.Again != true || !d.runs[1].Due.Equal(first) || d.runs[1].Fence <= d.runs[0].Fence) {
					t.Errorf("%+v after %+v", d.runs[1].Tick, d.runs[0].Tick)
				}
				d.mu.Unlock()
				cut.Mend()
				time.Sleep(time.Minute)
				cancel()
				d.work.Wait()
				if r := d.runs[len(d.runs)-1]; !r.Due.Equal(first.Add(time.Minute)) || r.Tick.Again {
					t.Errorf("the last run was %+v", r.Tick)
				}
				if n := strings.Count(out.String(), "a process was lost while it ran"); n != map[bool]int{false: 1, true: 0}[again] {
					t.Errorf("%d records of it: %s", n, out.String())
				}
			})
		})
	}
}

// No process was there for some ticks: the last one is run at once, if it is not too late.
func TestRun_MissedTicks(t *testing.T) {
	for late, want := range map[time.Duration]int{0: 2, 30 * time.Second: 2, 10 * time.Second: 1, -1: 1} {
		t.Run(late.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				d, opts := &diary{t: t}, &periodic.Options{Late: late}
				ctx, cancel := context.WithCancel(t.Context())
				d.join(ctx, start(t, a), "first", 0, periodic.Every(time.Minute), opts, nil)
				time.Sleep(time.Minute + time.Second)
				cancel()
				d.work.Wait()
				time.Sleep(3*time.Minute + 20*time.Second)
				ctx, cancel = context.WithCancel(t.Context())
				d.join(ctx, start(t, a), "second", 0, periodic.Every(time.Minute), opts, nil)
				time.Sleep(time.Second)
				cancel()
				d.work.Wait()
				if len(d.runs) != want || want == 2 && d.runs[1].Missed != 2 {
					t.Errorf("%+v", d.runs)
				}
			})
		})
	}
}

// A process that has seen the last run does not forget it with the store.
func TestRun_ALostRecord(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		d := &diary{t: t}
		ctx, cancel := context.WithCancel(t.Context())
		first := time.Now().Add(time.Minute)
		for i := range 3 {
			d.join(ctx, start(t, a), fmt.Sprint(i), 0, periodic.Every(time.Minute), nil, nil)
		}
		time.Sleep(time.Minute + time.Second)
		a.Restore(nil)
		time.Sleep(5*time.Minute - 2*time.Second)
		cancel()
		d.work.Wait()
		d.want(first, time.Minute, 5, 0, time.Second)
	})
}

func TestRun_OverRedis(t *testing.T) {
	takes.Seconds(t)
	s := redistest.Start(t)
	d := &diary{t: t}
	ctx, cancel := context.WithCancel(t.Context())
	enough := make(chan struct{})
	n := 0
	for i := range 3 {
		c := start(t, redisarbiter.New(s.Client(t), &redisarbiter.Options{ColdStart: true}))
		d.join(ctx, c, fmt.Sprint(i), time.Duration(i)*20*time.Millisecond, periodic.Every(100*time.Millisecond), nil,
			func(context.Context, periodic.Tick) error {
				if n++; n == 20 {
					close(enough)
				}
				return nil
			})
	}
	<-enough
	cancel()
	d.work.Wait()
	for i := range d.runs {
		if i > 0 && !d.runs[i].Due.After(d.runs[i-1].Due) {
			t.Errorf("%v after %v", d.runs[i].Due, d.runs[i-1].Due)
		}
	}
}

// nightly is a minute after midnight until its end.
type nightly struct{ end time.Time }

func (n nightly) Next(t time.Time) time.Time {
	next := time.Date(t.Year(), t.Month(), t.Day(), 0, 1, 0, 0, time.UTC)
	if !next.After(t) {
		next = next.AddDate(0, 0, 1)
	}
	if next.After(n.end) {
		return time.Time{}
	}
	return next
}

func TestRun_EndsWithTheSchedule(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		d := &diary{t: t}
		first := time.Date(2026, 11, 22, 0, 1, 0, 0, time.UTC)
		d.join(t.Context(), start(t, a), "a", 0, nightly{first.Add(time.Hour)}, nil, nil)
		d.work.Wait()
		d.want(first, 0, 1, 0, time.Second)
	})
}

func TestRun_Refuses(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c, fn := start(t, a), func(context.Context, periodic.Tick) error { return nil }
		hourly := periodic.Every(time.Hour)
		for name, err := range map[string]error{
			"nil":     periodic.Run(t.Context(), nil, "a", hourly, nil, fn),
			"name":    periodic.Run(t.Context(), c, "", hourly, nil, fn),
			"MaxSkew": periodic.Run(t.Context(), c, "a", hourly, &periodic.Options{MaxSkew: -1}, fn),

			"MaxSkew is 2ns":              periodic.Run(t.Context(), c, "a", hourly, &periodic.Options{MaxSkew: 2}, fn),
			"Late is 10ns":                periodic.Run(t.Context(), c, "a", hourly, &periodic.Options{Late: 10}, fn),
			"the period of Every is 0s":   periodic.Run(t.Context(), c, "a", periodic.Every(0), nil, fn),
			"the period of Every is -1s":  periodic.Run(t.Context(), c, "a", periodic.Every(-time.Second), nil, fn),
			"the period of Every is 30ns": periodic.Run(t.Context(), c, "a", periodic.Every(30), nil, fn),
		} {
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		}
		c.Close(t.Context())
		if err := periodic.Run(t.Context(), c, "a", periodic.Every(time.Millisecond), nil, fn); !errors.Is(err, coord.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

// thrice has three ticks, a second apart, and then stands still.
type thrice struct{ first time.Time }

func (s thrice) Next(t time.Time) time.Time {
	if last := s.first.Add(2 * time.Second); !t.Before(last) {
		return last
	}
	return s.first.Add(max(t.Sub(s.first)+time.Second, 0).Truncate(time.Second))
}

// inside is a schedule with another one inside.
type inside struct{ periodic.Schedule }

// A schedule whose next tick is not later would be asked for ever: Run ends with an error that says
// so.
func TestRun_ASchedulesNextTickIsLater(t *testing.T) {
	for name, x := range map[string]struct {
		s    func() periodic.Schedule
		runs int
	}{
		"a tick without end":    {func() periodic.Schedule { return thrice{time.Now().Add(time.Second)} }, 3},
		"no period inside":      {func() periodic.Schedule { return inside{periodic.Every(0)} }, 0},
		"a short period inside": {func() periodic.Schedule { return inside{periodic.Every(30)} }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				runs := 0
				err := periodic.Run(ctx, start(t, a), "report", x.s(), nil, func(context.Context, periodic.Tick) error {
					runs++
					return nil
				})
				if err == nil || !strings.Contains(err.Error(), "must be later") || runs != x.runs || ctx.Err() != nil {
					t.Errorf("%d runs, %v", runs, err)
				}
			})
		})
	}
}

func TestLastTick(t *testing.T) {
	day := func(d, h int) time.Time { return time.Date(2026, 11, d, h-3, 1, 0, 0, time.UTC) }
	forever := nightly{day(30, 23).AddDate(1000, 0, 0)}
	for _, x := range []struct {
		s      periodic.Schedule
		t, now time.Time
		last   time.Time
		before int
	}{
		{forever, day(1, 3), day(2, 2), time.Time{}, 0},
		{forever, day(1, 3), day(2, 3), day(2, 3), 0},
		{forever, day(1, 3), day(5, 2), day(4, 3), 2},
		{forever, day(1, 3).AddDate(-100, 0, 0), day(5, 2), day(4, 3), 1000},
		{periodic.Every(time.Hour), day(1, 3), day(1, 3).Add(59*time.Minute - 1), time.Time{}, 0},
		{periodic.Every(time.Hour), day(1, 3), day(2, 3), day(2, 3).Add(-time.Minute), 23},
		{periodic.Every(time.Millisecond), day(1, 3).AddDate(-100, 0, 0), day(1, 3), day(1, 3), 3155673600000 - 1},
	} {
		last, before, next := periodic.LastTick(x.s, x.t, x.now)
		if !last.Equal(x.last) || before < x.before || !next.Equal(x.s.Next(x.now)) {
			t.Errorf("%v to %v: %v, %d, %v, want %v, %d", x.t, x.now, last, before, next, x.last, x.before)
		}
	}
}
