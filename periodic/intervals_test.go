package periodic_test

import (
	"context"
	"slices"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/periodic"
)

// halfHours has ticks half an hour after some full hours, in the location of the time that it is asked for, as a line of a crontab.
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

// A record says of a time in London's winter that it is UTC. The ticks after it, in summer, are those of London all the same, and one
// that is run again is told as one of London.
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

// afterThirty has a tick half a minute after the time that it is asked for, in full seconds, as "@every 30s" of cron's parser.
type afterThirty struct{}

func (afterThirty) Next(t time.Time) time.Time {
	return t.Add(30*time.Second - time.Duration(t.Nanosecond()))
}

// A schedule that counts from the time that it is asked for is asked for the tick after the last one, also about when to look: the
// job's own time makes no tick later than the one before.
func TestRun_AScheduleThatCountsFromTheLastTick(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+15*time.Second)
		defer cancel()
		runs := 0
		err := periodic.Run(ctx, start(t, a), "report", afterThirty{}, &periodic.Options{Late: -1}, func(ctx context.Context, tick periodic.Tick) error {
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
