// Package adaptertest checks adapters that put Holdfast into an interface of another library. The
// library itself runs, in two processes' worth of coordinators over one embedded arbiter, on
// virtual time where it can.
package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/coordtest"
	"github.com/holdfast-go/holdfast/internal/crash"
)

// A Fixture makes a library run something under a lock.
type Fixture struct {
	// Section makes the library call section once, under the lock of the key, in the process that
	// has c, and returns when that is over. It returns section's error, or an error of its own.
	// Section's ctx is the one that the library, or the adapter, gives to running code. Required.
	Section func(t *testing.T, c *coord.Coordinator, key string, section func(ctx context.Context) error) error

	// Untold says that the library has no way to tell a running section that its lock was lost.
	Untold bool

	// Single says that the library has one lock, whatever the key.
	Single bool

	// Silent says that the library keeps section's error to itself.
	Silent bool

	// RealTime is for libraries that talk to a server. Nothing runs on virtual time then.
	RealTime bool
}

// Run checks an adapter that locks.
func Run(t *testing.T, f Fixture) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Fixture, *world){
		"two processes exclude each other":       exclude,
		"different keys do not":                  apart,
		"an error passes, and frees the key":     fail,
		"a process crashes in the middle":        crashes,
		"a wait that has an end comes to an end": closed,
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, f.RealTime, func(t *testing.T) { test(t, f, newWorld(t, f.RealTime)) })
		})
	}
}

func inTime(t *testing.T, really bool, test func(t *testing.T)) {
	t.Helper()
	if really {
		test(t)
		return
	}
	coordtest.Bubble(t, func(t *testing.T, _ *fallback.Memory) { test(t) })
}

// world is two processes; the first can crash.
type world struct {
	a, b *coord.Coordinator
	cut  *crash.Arbiter
	unit time.Duration // of the tests' waits
}

func newWorld(t *testing.T, really bool) *world {
	t.Helper()
	m := fallback.NewMemory()
	w := &world{cut: &crash.Arbiter{Memory: m}, unit: time.Second}
	opts := &coord.Options{Namespace: "adaptertest"}
	if really {
		w.unit, opts.SessionTTL, opts.Grace = 20*time.Millisecond, 2*time.Second, 3*time.Second
	}
	w.a, w.b = Start(t, w.cut, opts), Start(t, m, opts)
	return w
}

// Start returns a coordinator that is closed when the test ends.
func Start(t *testing.T, a fallback.Arbiter, opts *coord.Options) *coord.Coordinator {
	t.Helper()
	return coordtest.Start(t, a, opts)
}

// Locks returns a coordinator over an arbiter in memory, for an example, which closes it.
func Locks() *coord.Coordinator {
	c, err := coord.New(context.Background(), fallback.NewMemory(), nil)
	if err != nil {
		panic(err) // the defaults are valid
	}
	return c
}

func exclude(t *testing.T, f Fixture, w *world) {
	const each = 5
	var inside, runs atomic.Int32
	var work sync.WaitGroup
	for _, c := range []*coord.Coordinator{w.a, w.b} {
		for range 2 {
			work.Go(func() {
				for range each {
					err := f.Section(t, c, "key", func(context.Context) error {
						if n := inside.Add(1); n != 1 {
							t.Errorf("%d sections at a time", n)
						}
						time.Sleep(w.unit / 10)
						runs.Add(1)
						inside.Add(-1)
						return nil
					})
					if err != nil {
						t.Errorf("Section: %v", err)
					}
				}
			})
		}
	}
	work.Wait()
	if n := runs.Load(); n != 4*each {
		t.Errorf("%d sections ran, want %d", n, 4*each)
	}
}

func apart(t *testing.T, f Fixture, w *world) {
	if f.Single {
		t.Skip("there is one lock")
	}
	both := make(chan struct{})
	var inside atomic.Int32
	var work sync.WaitGroup
	for i, c := range []*coord.Coordinator{w.a, w.b} {
		work.Go(func() {
			err := f.Section(t, c, fmt.Sprint("key-", i), func(ctx context.Context) error {
				if inside.Add(1) == 2 {
					close(both)
				}
				select {
				case <-both:
					return nil
				case <-time.After(1000 * w.unit):
					return errors.New("the other section did not come")
				}
			})
			if err != nil {
				t.Errorf("Section: %v", err)
			}
		})
	}
	work.Wait()
}

// errSection is the error of a section that fails.
var errSection = errors.New("the section failed")

func fail(t *testing.T, f Fixture, w *world) {
	for range 2 {
		err := f.Section(t, w.a, "key", func(context.Context) error { return errSection })
		if !errors.Is(err, errSection) && !f.Silent {
			t.Errorf("got %v", err)
		}
	}
	ran := false
	if err := f.Section(t, w.b, "key", func(context.Context) error { ran = true; return nil }); err != nil || !ran {
		t.Errorf("after that: %v", err)
	}
}

// crashes cuts the first process off in its section. Its section is told before the second one
// begins.
func crashes(t *testing.T, f Fixture, w *world) {
	inside, told := make(chan struct{}), make(chan time.Time, 1)
	release := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		_ = f.Section(t, w.a, "key", func(ctx context.Context) error { // whatever it returns
			close(inside)
			select {
			case <-ctx.Done():
				told <- time.Now()
				if !errors.Is(context.Cause(ctx), coord.ErrLost) {
					t.Errorf("cause: %v", context.Cause(ctx))
				}
			case <-release:
			}
			return errSection
		})
	})
	<-inside
	w.cut.Cut()
	var began time.Time
	err := f.Section(t, w.b, "key", func(context.Context) error { began = time.Now(); return nil })
	if err != nil || began.IsZero() {
		t.Errorf("after the crash: %v", err)
	}
	select {
	case at := <-told:
		if !at.Before(began) {
			t.Errorf("told %v after the next one began", at.Sub(began))
		}
		if f.Untold {
			t.Error("the section was told: the fixture says it cannot be")
		}
	default:
		if !f.Untold {
			t.Error("the section was not told that its lock was lost")
		}
	}
	close(release)
	work.Wait()
	w.cut.Mend()
}

// closed: a process that is closed does not run waiting sections.
func closed(t *testing.T, f Fixture, w *world) {
	inside, release := make(chan struct{}), make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		if err := f.Section(t, w.b, "key", func(context.Context) error { close(inside); <-release; return nil }); err != nil {
			t.Errorf("Section: %v", err)
		}
	})
	<-inside
	var waiting error
	work.Go(func() {
		waiting = f.Section(t, w.a, "key", func(context.Context) error { t.Error("it ran"); return nil })
	})
	time.Sleep(w.unit)
	if err := w.a.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	time.Sleep(w.unit)
	close(release)
	work.Wait()
	if waiting == nil && !f.Silent {
		t.Error("a section that did not run has no error")
	}
}
