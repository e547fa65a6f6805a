package cron_test

import (
	"context"
	"errors"
	"log"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	robfig "github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast/adapters/adaptertest"
	"github.com/holdfast-go/holdfast/adapters/adaptertest/processtest"
	"github.com/holdfast-go/holdfast/adapters/cron"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/coordtest"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/periodic"
)

func TestMain(m *testing.M) { leak.Main(m) }

// A starter does the same as adaptertest.Slots.Run.
type starter func(t *testing.T, c *coord.Coordinator, job func(context.Context)) (stop func())

// parser takes lines with seconds.
var parser = robfig.NewParser(robfig.Second | robfig.Minute | robfig.Hour | robfig.Dom | robfig.Month | robfig.Dow | robfig.Descriptor)

// The period of tests that take time, and the lines for both.
const (
	short      = 2 * time.Second
	shortLine  = "*/2 * * * * *"
	minuteLine = "0 * * * * *"
)

func once(line string, opts *cron.Options) starter {
	return func(t *testing.T, c *coord.Coordinator, job func(context.Context)) func() {
		once, err := cron.Once(t.Context(), c, "report", opts)
		if err != nil {
			t.Fatal(err)
		}
		s := robfig.New(robfig.WithParser(parser))
		told := cron.Func(func(ctx context.Context, _ coord.Fence) { job(ctx) })
		if _, err := s.AddJob(line, robfig.NewChain(once).Then(told)); err != nil {
			t.Fatal(err)
		}
		s.Start()
		return func() { <-s.Stop().Done() }
	}
}

func TestOnce(t *testing.T) {
	adaptertest.RunSlots(t, adaptertest.Slots{Period: time.Minute, Run: once(minuteLine, nil)})
}

func TestOnce_Processes(t *testing.T) {
	processtest.RunSlots(t, short, once(shortLine, &cron.Options{Keep: short / 2}))
}

// "@every" is due a period after each process's start: keep is the period, less the difference of
// delays. With half of it, three processes run the job each 40 s.
func TestOnce_Every(t *testing.T) {
	coordtest.Bubble(t, func(t *testing.T, a *fallback.Memory) {
		var runs atomic.Int32
		start := once("@every 1m", &cron.Options{Keep: 55 * time.Second})
		for range 3 {
			defer start(t, coordtest.Start(t, a, nil), func(context.Context) { runs.Add(1) })()
			time.Sleep(20 * time.Second)
		}
		time.Sleep(20 * time.Minute)
		if n := runs.Load(); n < 19 || n > 21 {
			t.Errorf("%d runs in 21 minutes", n)
		}
	})
}

// The result of cron's parser is a schedule of package periodic.
func TestSchedule(t *testing.T) {
	adaptertest.RunSlots(t, adaptertest.Slots{Period: time.Minute, Run: scheduled(minuteLine)})
}

func TestSchedule_Processes(t *testing.T) { processtest.RunSlots(t, short, scheduled(shortLine)) }

func scheduled(line string) starter {
	return func(t *testing.T, c *coord.Coordinator, job func(context.Context)) func() {
		schedule, err := parser.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- periodic.Run(ctx, c, "report", schedule, nil, func(ctx context.Context, _ periodic.Tick) error { job(ctx); return nil })
		}()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
}

func TestOnce_Refuses(t *testing.T) {
	c := adaptertest.Start(t, fallback.NewMemory(), nil)
	for name, f := range map[string]func() error{
		"coordinator":  func() error { _, err := cron.Once(t.Context(), nil, "a", nil); return err },
		"name":         func() error { _, err := cron.Once(t.Context(), c, "", nil); return err },
		"Keep":         func() error { _, err := cron.Once(t.Context(), c, "a", &cron.Options{Keep: -1}); return err },
		"Keep is 30ns": func() error { _, err := cron.Once(t.Context(), c, "a", &cron.Options{Keep: 30}); return err },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Where the arbiter keeps no results, a store has to be set, and then jobs run.
func TestOnce_AnArbiterWithoutResults(t *testing.T) {
	coordtest.Bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := coordtest.Start(t, coordtest.WithoutResults(a), nil)
		if _, err := cron.Once(t.Context(), c, "report", nil); !errors.Is(err, coord.ErrNoResults) || !strings.Contains(err.Error(), "Options.Store") {
			t.Errorf("without a store: %v", err)
		}
		results, err := coordtest.Start(t, fallback.NewMemory(), nil).Results()
		if err != nil {
			t.Fatal(err)
		}
		once, err := cron.Once(t.Context(), c, "report", &cron.Options{Store: results})
		if err != nil {
			t.Fatal(err)
		}
		runs := 0
		job := once(cron.Func(func(context.Context, coord.Fence) { runs++ }))
		job.Run()
		job.Run() // the same tick, in another process
		if runs != 1 {
			t.Errorf("%d runs", runs)
		}
	})
}

func Example() {
	ctx := context.Background()
	locks, err := coord.New(ctx, fallback.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	once, err := cron.Once(ctx, locks, "invoices", nil)
	if err != nil {
		log.Fatal(err)
	}
	scheduler := robfig.New(robfig.WithChain(robfig.Recover(robfig.DefaultLogger))) // for all jobs
	job := cron.Func(func(ctx context.Context, fence coord.Fence) { log.Print("once, in all processes together") })
	if _, err := scheduler.AddJob("0 3 * * *", robfig.NewChain(once).Then(job)); err != nil {
		log.Fatal(err)
	}
	scheduler.Start()
	<-scheduler.Stop().Done()
	if err := locks.Close(ctx); err != nil {
		log.Print(err)
	}
	// Output:
}
