package sim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

var (
	seed = flag.Uint64("sim.seed", 1, "first `seed`")
	runs = flag.Int("sim.runs", 40, "number of `runs`")
	logs = flag.Bool("sim.log", false, "what the coordinators log")
	same = flag.Bool("sim.same", false, "the same seed in every run")
)

// run fails the test if anything happens that must not, and then tells the story.
func run(t *testing.T, cfg Config) (r Result, ok bool) {
	t.Helper()
	if *logs {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	begin := time.Now()
	synctest.Test(t, func(*testing.T) { r = Run(cfg) })
	if testing.Verbose() {
		t.Logf("seed %d: %d grants, %d writes, %d refused, %v, took %v", cfg.Seed, r.Grants, r.Writes, r.Late, r.Faults, time.Since(begin))
	}
	if len(r.Bad) == 0 {
		return r, true
	}
	t.Errorf("seed %d: %+v", cfg.Seed, cfg)
	for _, line := range r.Story {
		t.Log(line)
	}
	for _, line := range r.Bad {
		t.Error(line)
	}
	return r, false
}

func TestSimulation(t *testing.T) {
	var took time.Duration
	grants, writes, late, faults, begin := 0, 0, 0, 0, time.Now()
	for i := range *runs {
		cfg := Random(*seed + uint64(i))
		if *same {
			cfg = Random(*seed)
		}
		r, ok := run(t, cfg)
		if !ok {
			return
		}
		took += r.Took
		grants, writes, late, faults = grants+r.Grants, writes+r.Writes, late+r.Late, faults+len(r.Story)
	}
	t.Logf("%.0f simulated hours in %v: %d faults, %d grants, %d writes, %d refused by the resource",
		took.Hours(), time.Since(begin), faults, grants, writes, late)
}

// An owner that is about to lose its partition, as it does not reach the arbiter, grants a key until then to a node that
// does not reach it either: that one must be told at that moment, and not when it looks the next time.
func TestAShortHoldEndsInTime(t *testing.T) {
	granted := 0
	for i := range 60 {
		at := 6*time.Second + time.Duration(i)*50*time.Millisecond
		_, ok := run(t, Config{Seed: uint64(i), TTL: 10 * time.Second, Nodes: 2, Keys: 1, script: func(w *world) {
			w.nodes[1].leave()
			time.Sleep(time.Second) // or both would look at their clocks at the same moments
			w.nodes[1].start()
			time.Sleep(15 * time.Second)
			owner, holder := w.nodes[0].now, w.nodes[1].now
			key := ""
			for n := 0; key == ""; n++ {
				if o, _ := owner.c.Owner(fmt.Sprint("key", n)); o.Self {
					key = fmt.Sprint("key", n)
				}
			}
			owner.client.set(func(x *weather) { x.away = true })
			time.Sleep(at)
			holder.client.set(func(x *weather) { x.away = true })
			time.Sleep(10 * time.Millisecond)
			l, err := holder.c.TryLock(context.Background(), key)
			if err != nil {
				return // the owner has lapsed already
			}
			granted++
			ctx := l.Context()
			time.Sleep(9*time.Second - at) // T - M after its last renewal, at the latest
			if ctx.Err() == nil {
				t.Errorf("%v: the owner has lapsed, and the holder of %q has not been told", at, key)
			}
			if err := l.Unlock(); !errors.Is(err, coord.ErrLost) {
				t.Errorf("Unlock: %v", err)
			}
		}})
		if !ok {
			return
		}
	}
	if granted < 10 || granted == 60 {
		t.Errorf("only %d of 60 were granted before the owner lapsed", granted)
	}
}

// A grant is on its way while its owner gives the partition back, and so the key has a row before it has arrived. Whoever
// wants it then asks the node, which must not say that it has not got it.
func TestAGrantOnItsWayIsNotDenied(t *testing.T) {
	for seed := range uint64(20) {
		_, ok := run(t, Config{Seed: seed, TTL: 10 * time.Second, Nodes: 3, Clients: 6, Keys: 3, script: func(w *world) {
			w.net.mu.Lock()
			w.net.latency = 300 * time.Millisecond
			w.net.mu.Unlock()
			for i := range 10 {
				time.Sleep(12 * time.Second)
				n := w.nodes[i%3]
				n.leave()
				n.start()
			}
		}})
		if !ok {
			return
		}
	}
}
