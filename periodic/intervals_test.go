package periodic_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/periodic"
)

// halfHours has ticks half an hour after some full hours, as a line of a crontab. The location is
// that of the argument of Next.
type halfHours []int

func (s halfHours) Next(t time.Time) time.Time {
	for d := 0; ; d++ {
		for _, hour := range s {
			if at := time.Date(t.Year(), t.Month(), t.Day()+d, hour, 30, 0, 0, t.Location()); at.After(t) {
				return at
			}
		}
	}
}

// A record says of a time in London's winter that it is UTC. The ticks after it, in summer, are
// those of London all the same, and one that is run again is told as one of London.
func TestRun_InTheLocationOfItsClock(t *testing.T) {
	london, err := time.LoadLocation("Europe/London")
	if err != nil {
		t.Fatal(err)
	}
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		ahead := time.Until(time.Date(2027, 3, 28, 0, 0, 0, 0, time.UTC)) // summer begins at one o'clock
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		ctx = periodic.WithClock(ctx, func() time.Time { return time.Now().Add(ahead).In(london) })
		c := start(t, a)
		results, err := c.Results()
		if err != nil {
			t.Fatal(err)
		}
		crashed := `{"due":"2027-03-27T22:30:00Z","at":"2027-03-28T00:00:00Z"}`
		if err := results.Put(ctx, "periodic/report", []byte(crashed), 1, time.Hour); err != nil {
			t.Fatal(err)
		}
		var due []string
		err = periodic.Run(ctx, c, "report", halfHours{0, 2, 22}, &periodic.Options{Again: true}, func(_ context.Context, tick periodic.Tick) error {
			if late := time.Now().Add(ahead).Sub(tick.Due); late > time.Second && !tick.Again {
				t.Errorf("the tick of %v was run %v late", tick.Due, late)
			}
			due = append(due, tick.Due.Format("15:04 MST"))
			return nil
		})
		if want := []string{"22:30 GMT", "00:30 GMT", "02:30 BST"}; err != nil || !slices.Equal(due, want) {
			t.Errorf("%v, %v, want %v", due, err, want)
		}
	})
}

// A schedule may count from the argument of Next. Run asks it for the tick after the last one, also
// about when to look: the job's own time makes no tick later than the one before.
func TestRun_AScheduleThatCountsFromTheLastTick(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+15*time.Second)
		defer cancel()
		runs := 0
		err := periodic.Run(ctx, start(t, a), "report", after(30*time.Second), &periodic.Options{Late: -1}, func(ctx context.Context, tick periodic.Tick) error {
			if late := time.Since(tick.Due); late > 100*time.Millisecond || tick.Missed != 0 {
				t.Errorf("%+v was run %v late", tick, late)
			}
			runs++
			time.Sleep(1200 * time.Millisecond)
			return nil
		})
		if err != nil || runs != 20 {
			t.Errorf("%d runs, %v", runs, err)
		}
	})
}

// after has a tick that long after the time that it is asked for, in full seconds, as "@every" of
// cron's parser.
type after time.Duration

func (a after) Next(t time.Time) time.Time {
	return t.Add(time.Duration(a) - time.Duration(t.Nanosecond()))
}

// seconds has a tick each second in the first ten minutes of each hour.
type seconds struct{}

func (seconds) Next(t time.Time) time.Time {
	if next := t.Truncate(time.Second).Add(time.Second); next.Minute() < 10 {
		return next
	}
	return t.Truncate(time.Hour).Add(time.Hour)
}

// A schedule that counts from the last tick has its ticks at multiples of its period after that.
// This holds after many missed ticks, whenever it is asked. No other schedule is taken for such a
// one.
func TestLastTick_CountsFromTheLastOne(t *testing.T) {
	noon := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	for _, period := range []time.Duration{7 * time.Second, 45 * time.Second} {
		for ago := 990 * period; ago < 1500*period; ago += 33333 * time.Millisecond {
			was, n := noon.Add(-ago), int(ago/period)
			last, before, next := periodic.LastTick(after(period), was, noon)
			first := was.Add(period - time.Duration(was.Nanosecond()))
			if late := noon.Sub(last); last.Sub(first)%period != 0 || late < 0 || late >= period ||
				!next.Equal(last.Add(period)) || before != int(last.Sub(first)/period) {
				t.Fatalf("%v, %d ticks, after %v: %v, %d, %v", period, n, was, last, before, next)
			}
		}
	}
	for now := noon; now.Before(noon.Add(time.Hour)); now = now.Add(77 * time.Second) {
		last, _, next := periodic.LastTick(seconds{}, noon.Add(-3*time.Hour), now)
		if now.Minute() >= 10 && !last.Equal(noon.Add(10*time.Minute-time.Second)) || now.Minute() < 10 && !last.Equal(now) ||
			!next.Equal(seconds{}.Next(now)) {
			t.Errorf("at %v: %v, %v", now, last, next)
		}
	}
}

// A job whose ticks count from the last one runs again after no process was there for long.
func TestRun_ATickCountsFromOneLongAgo(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a)
		results, err := c.Results()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		was := time.Now().Add(-3 * time.Hour).Truncate(time.Second)
		record := fmt.Sprintf(`{"due":%q,"at":%[1]q,"done":true,"of":"id of here","host":"here"}`, was.Format(time.RFC3339))
		store := &longAgo{results, time.Since(was)}
		if err := results.Put(ctx, "periodic/report", []byte(record), 1, time.Hour); err != nil {
			t.Fatal(err)
		}
		runs := 0
		err = periodic.Run(periodic.WithMachine(ctx, "here"), c, "report", after(7*time.Second), &periodic.Options{Late: -1, Store: store},
			func(_ context.Context, tick periodic.Tick) error {
				store.ago = 0
				if tick.Due.Sub(was)%(7*time.Second) != 0 {
					t.Errorf("a tick at %v, after one at %v", tick.Due, was)
				}
				runs++
				return nil
			})
		if err != nil || runs < 8 {
			t.Errorf("%d runs in a minute, %v", runs, err)
		}
	})
}

// longAgo is a store whose record is older.
type longAgo struct {
	coord.ShareStore
	ago time.Duration
}

func (s *longAgo) Get(ctx context.Context, key string) (coord.Shared, error) {
	r, err := s.ShareStore.Get(ctx, key)
	r.Age += s.ago
	return r, err
}

// A tick that comes between two readings of the clock is not passed over.
func TestRun_ATickWhileItLooks(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		ctx = periodic.WithClock(ctx, func() time.Time {
			time.Sleep(25 * time.Second) // read at 25 for the location, at 50 for since, then at 75 and at 100
			return time.Now()
		})
		err := periodic.Run(ctx, start(t, a), "report", periodic.Every(80*time.Second), nil, func(_ context.Context, tick periodic.Tick) error {
			if due := tick.Due.Sub(began); due != 80*time.Second {
				t.Errorf("the first tick was run at %v, due at %v", time.Since(began), due)
			}
			cancel()
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// berlin is a schedule that names its zone, as a line with CRON_TZ.
type berlin struct{ loc *time.Location }

func (b berlin) Next(t time.Time) time.Time { return halfHours{3}.Next(t.In(b.loc)).In(t.Location()) }

// Processes in two time zones run a daily line once for each. Each one says so, once.
func TestRun_InTwoTimeZones(t *testing.T) {
	east, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	var hourly halfHours
	for i := range 24 {
		hourly = append(hourly, i)
	}
	for _, x := range []struct {
		s    periodic.Schedule
		runs int // in four hours
		told bool
	}{{halfHours{3}, 2, true}, {berlin{east}, 1, false}, {hourly, 4, false}, {periodic.Every(2 * time.Hour), 2, false}} {
		bubble(t, func(t *testing.T, a *fallback.Memory) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Hour+time.Minute)
			defer cancel()
			runs := &diary{t: t}
			var out [2]bytes.Buffer
			for i, loc := range []*time.Location{time.UTC, east} {
				ctx := periodic.WithMachine(periodic.WithClock(ctx, func() time.Time { return time.Now().In(loc) }), fmt.Sprint("host", i))
				c, opts := start(t, a), &periodic.Options{Logger: slog.New(slog.NewTextHandler(&out[i], nil))}
				runs.work.Go(func() {
					if err := periodic.Run(ctx, c, "report", x.s, opts, func(_ context.Context, tick periodic.Tick) error {
						runs.mu.Lock()
						defer runs.mu.Unlock()
						runs.runs = append(runs.runs, run{Tick: tick})
						return nil
					}); err != nil {
						t.Error(err)
					}
				})
			}
			runs.work.Wait()
			if n := len(runs.runs); n != x.runs {
				t.Errorf("%T: %d runs, want %d", x.s, n, x.runs)
			}
			for i := range out {
				want := fmt.Sprintf(`level=ERROR msg="holdfast: a periodic job has other ticks in the time zone of another process"`+
					` job=report zone=%s here=%s`, []string{"+01:00", "+00:00"}[i], []string{"+00:00", "+01:00"}[i])
				if n := strings.Count(out[i].String(), want); x.told && n != 1 || !x.told && out[i].Len() != 0 {
					t.Errorf("%T: host%d says %s\nwant %s", x.s, i, out[i].String(), want)
				}
			}
		})
	}
}
