package gocron_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	lib "github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast/adapters/adaptertest"
	"github.com/holdfast-go/holdfast/adapters/adaptertest/processtest"
	"github.com/holdfast-go/holdfast/adapters/gocron"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/election"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/coordtest"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/periodic"
)

func TestMain(m *testing.M) { leak.Main(m) }

// schedule starts a scheduler with a job.
func schedule(t *testing.T, due lib.JobDefinition, job func(context.Context), opts ...lib.SchedulerOption) (stop func()) {
	s, err := lib.NewScheduler(opts...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.NewJob(due, lib.NewTask(job), lib.WithName("report")); err != nil {
		t.Fatal(err)
	}
	s.Start()
	return func() {
		if err := s.Shutdown(); err != nil && !errors.Is(err, lib.ErrStopJobsTimedOut) {
			t.Error(err)
		}
	}
}

// A starter does the same as adaptertest.Slots.Run.
type starter func(t *testing.T, c *coord.Coordinator, job func(context.Context)) (stop func())

func locked(period time.Duration) starter {
	return func(t *testing.T, c *coord.Coordinator, job func(context.Context)) func() {
		l, err := gocron.NewLocker(c, period-period/12)
		if err != nil {
			t.Fatal(err)
		}
		return schedule(t, lib.DurationJob(period), job, lib.WithDistributedLocker(l), lib.WithStopTimeout(time.Minute))
	}
}

func elected(period time.Duration) starter {
	return func(t *testing.T, c *coord.Coordinator, job func(context.Context)) func() {
		e, err := election.New(c, "scheduler", nil)
		if err != nil {
			t.Fatal(err)
		}
		x := gocron.NewElector(e)
		stop := schedule(t, lib.DurationJob(period), job, lib.WithDistributedElector(x), lib.WithStopTimeout(time.Minute))
		return func() {
			stop()
			x.Close()
		}
	}
}

func TestLocker(t *testing.T) {
	adaptertest.RunSlots(t, adaptertest.Slots{Period: time.Minute, Run: locked(time.Minute)})
}

func TestElector(t *testing.T) {
	adaptertest.RunSlots(t, adaptertest.Slots{Period: time.Minute, Run: elected(time.Minute)})
}

// A CronJob is due in all processes together: half of the period is kept. A DurationJob is due a
// period after each one's start: nearly all of it is. With half, three run the job each 40 s.
func TestLocker_Phases(t *testing.T) {
	for name, x := range map[string]struct {
		keep time.Duration
		job  lib.JobDefinition
	}{
		"CronJob":     {30 * time.Second, lib.CronJob("* * * * *", false)},
		"DurationJob": {55 * time.Second, lib.DurationJob(time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			coordtest.Bubble(t, func(t *testing.T, a *fallback.Memory) {
				var mu sync.Mutex
				var began []time.Time
				job := func(context.Context) {
					mu.Lock()
					defer mu.Unlock()
					began = append(began, time.Now())
				}
				for range 3 {
					l, err := gocron.NewLocker(coordtest.Start(t, a, nil), x.keep)
					if err != nil {
						t.Fatal(err)
					}
					defer schedule(t, x.job, job, lib.WithDistributedLocker(l))()
					time.Sleep(20 * time.Second)
				}
				time.Sleep(20*time.Minute + 5*time.Second)
				mu.Lock()
				defer mu.Unlock()
				if n := len(began); n < 20 || n > 21 {
					t.Errorf("%d runs in 21 minutes", n)
				}
				for i := range began {
					if i > 0 && began[i].Sub(began[i-1]) < x.keep {
						t.Errorf("run %d began %v after the one before", i, began[i].Sub(began[i-1]))
					}
				}
			})
		})
	}
}

// short is the period of tests that take time.
const short = 2 * time.Second

func TestLocker_Processes(t *testing.T)  { processtest.RunSlots(t, short, locked(short)) }
func TestElector_Processes(t *testing.T) { processtest.RunSlots(t, short, elected(short)) }

func TestNewLocker_Refuses(t *testing.T) {
	c := adaptertest.Start(t, fallback.NewMemory(), nil)
	if _, err := gocron.NewLocker(nil, time.Minute); err == nil {
		t.Error("a nil coordinator was accepted")
	}
	if _, err := gocron.NewLocker(c, 0); err == nil {
		t.Error("a zero keep was accepted")
	}
}

// Where the arbiter keeps no results, a store has to be set, and then jobs run.
func TestNewLocker_AnArbiterWithoutResults(t *testing.T) {
	coordtest.Bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := coordtest.Start(t, coordtest.WithoutResults(a), nil)
		if _, err := gocron.NewLocker(c, time.Second); !errors.Is(err, coord.ErrNoResults) || !strings.Contains(err.Error(), "WithStore") {
			t.Errorf("without a store: %v", err)
		}
		results, err := coordtest.Start(t, fallback.NewMemory(), nil).Results()
		if err != nil {
			t.Fatal(err)
		}
		l, err := gocron.NewLocker(c, time.Second, gocron.WithStore(results))
		if err != nil {
			t.Fatal(err)
		}
		slot, err := l.Lock(t.Context(), "report")
		if err != nil {
			t.Fatal(err)
		}
		if err := slot.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := l.Lock(t.Context(), "report"); !errors.Is(err, periodic.ErrTaken) {
			t.Errorf("the same tick, in another process: %v", err)
		}
	})
}

// An elector that cannot campaign says why.
func TestElector_CannotCampaign(t *testing.T) {
	coordtest.Bubble(t, func(t *testing.T, a *fallback.Memory) {
		e, err := election.New(coordtest.Start(t, coordtest.WithoutResults(a), nil), "scheduler", &election.Options{Prefer: election.Newest})
		if err != nil {
			t.Fatal(err)
		}
		x := gocron.NewElector(e)
		defer x.Close()
		synctest.Wait()
		if err := x.IsLeader(t.Context()); !errors.Is(err, gocron.ErrNotLeader) || !errors.Is(err, coord.ErrNoResults) {
			t.Error(err)
		}
	})
}

func Example() {
	ctx := context.Background()
	locks, err := coord.New(ctx, fallback.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	locker, err := gocron.NewLocker(locks, 30*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	s, err := lib.NewScheduler(lib.WithDistributedLocker(locker))
	if err != nil {
		log.Fatal(err)
	}
	_, err = s.NewJob(lib.CronJob("* * * * *", false), lib.NewTask(func() { log.Print("report") }), lib.WithName("report"))
	fmt.Println(err)
	fmt.Println(s.Shutdown(), locks.Close(ctx))
	// Output:
	// <nil>
	// <nil> <nil>
}
