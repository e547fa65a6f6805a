// Package processtest checks adapters in two processes of the operating system over a real Redis.
// The library itself runs in both, and one of them is killed in the middle of its work. Package
// adaptertest has the rest of the suite.
package processtest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/reexec"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// A Section does the same as adaptertest.Fixture.Section.
type Section func(t *testing.T, c *coord.Coordinator, key string, section func(ctx context.Context) error) error

// Run checks an adapter that locks. It starts the test binary again for the test that calls it. So
// this test has no other name than t's, and calls Run first.
func Run(t *testing.T, section Section) {
	t.Helper()
	run(t, 0, 2, func(c *coord.Coordinator, p *part) {
		for p.goesOn() {
			if err := section(t, c, "key", func(context.Context) error { p.inside(); return nil }); err != nil {
				t.Errorf("Section: %v", err)
			}
		}
	})
}

// RunSlots checks an adapter of a scheduler. start makes the scheduler run the job once per period
// in the process that has c, and returns a function that stops it.
func RunSlots(t *testing.T, period time.Duration, start func(t *testing.T, c *coord.Coordinator, job func(ctx context.Context)) (stop func())) {
	t.Helper()
	run(t, period/4, 1, func(c *coord.Coordinator, p *part) {
		stop := start(t, c, func(context.Context) { p.inside() })
		<-p.end
		stop()
	})
}

// run is the parent of two processes that work, or, in these, their work. Sections begin at least
// apart after each other, and as many of the processes have some.
func run(t *testing.T, apart time.Duration, take int, work func(*coord.Coordinator, *part)) {
	t.Helper()
	takes.Seconds(t)
	if text := os.Getenv(orderEnv); text != "" {
		takePart(t, text, work)
		return
	}
	w := &watch{t: t, apart: apart, events: make(chan event, 1000)}
	server := redistest.Start(t)
	dies, lives := w.start(server.Addr), w.start(server.Addr)
	w.await("both are ready", func() bool { return dies.ready && lives.ready })
	w.await("they have sections", func() bool {
		if take == 1 && lives.sections > dies.sections {
			dies, lives = lives, dies // the one that has all
		}
		return dies.sections >= 2 && (take == 1 || lives.sections >= 2)
	})
	fmt.Fprintln(dies.worker.In, hold)
	w.await("one stands in the middle", func() bool { return dies.holds })
	if err := dies.worker.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	w.await("it is dead", func() bool { return dies.ended })
	_ = dies.worker.Cmd.Wait() // it was killed
	if n, err := server.Client(t).Del(t.Context(), insideKey).Result(); n != 1 || err != nil {
		t.Errorf("the other one was inside meanwhile: %d, %v", n, err)
	}
	then := lives.sections
	w.await("the other one goes on", func() bool { return lives.sections >= then+3 })
	_ = lives.worker.In.Close()
	w.await("it ends", func() bool { return lives.ended })
	if err := lives.worker.Cmd.Wait(); err != nil {
		t.Errorf("the process that lives: %v", err)
	}
}

// watch is the parent's view.
type watch struct {
	t      *testing.T
	apart  time.Duration
	events chan event
	last   time.Time // of a section
}

// A process is one of the two.
type process struct {
	worker   *reexec.Worker
	sections int
	ready    bool
	holds    bool
	ended    bool
}

// An event is a line that a process says, or its end.
type event struct {
	by   *process
	text string // without mark; empty at the end
}

func (w *watch) start(addr string) *process {
	w.t.Helper()
	name, _, _ := strings.Cut(w.t.Name(), "/")
	worker, err := reexec.Start(w.t.Context(), orderEnv, order{addr}, os.Stderr, 10*time.Second, "-test.run=^"+name+"$")
	if err != nil {
		w.t.Fatal(err)
	}
	p := &process{worker: worker}
	go func() {
		for s := bufio.NewScanner(worker.Out); s.Scan(); {
			if text, ok := strings.CutPrefix(s.Text(), mark); ok {
				w.events <- event{p, text}
			}
		}
		w.events <- event{by: p}
	}()
	w.t.Cleanup(func() { end(worker.Cmd) })
	return p
}

// end ends a process that a failed test has left.
func end(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

func (w *watch) await(what string, ok func() bool) {
	w.t.Helper()
	for !ok() {
		e := <-w.events // a process that hangs is ended by the test's timeout
		var at int64
		switch e.text {
		case "":
			e.by.ended = true
			if !ok() {
				w.t.Fatalf("a process has ended before: %s", what)
			}
		case overlap:
			w.t.Error("two processes were inside at the same time")
		case ready:
			e.by.ready = true
		case holds:
			e.by.holds = true
		default:
			if _, err := fmt.Sscan(e.text, &at); err != nil {
				w.t.Fatalf("a process says %q", e.text)
			}
			now := time.Unix(0, at)
			// Messages of two processes may arrive in another order than they were sent.
			if since := now.Sub(w.last).Abs(); since < w.apart {
				w.t.Errorf("two sections began within %v, want at least %v", since, w.apart)
			}
			if now.After(w.last) {
				w.last = now
			}
			e.by.sections++
		}
	}
}
