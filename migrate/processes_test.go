package migrate_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/reexec"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// make migration: all libraries, and longer between two replacements.
var full = flag.Bool("migrate.full", false, "change each library in processes, with calls of ours and with the shims")

// workerEnv makes the test binary a process of a service: an order.
const workerEnv = "HOLDFAST_MIGRATE_WORKER"

type order struct{ Library, Kind, Addr string }

// report is the last message of a process.
type report struct{ Sections, Overlaps int64 }

// Keys of the store, which lives on the server of the locks.
const (
	insideKey = "store:inside" // the processes in their section
	unitsKey  = "store:units"  // a section reads it, and writes one more
)

// work locks again and again until SIGTERM, or until its parent is gone. It says on stdout when it
// had its first lock, and at its end its report.
func work(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	ctx, stop := reexec.Told()
	defer stop()
	lock, end, err := libraries[o.Library].open(context.WithoutCancel(ctx), o.Kind, o.Addr, func(client *redis.Client) fallback.Arbiter {
		return redisarbiter.New(client, &redisarbiter.Options{ColdStart: true})
	})
	if err != nil {
		return err
	}
	defer end()
	store := redis.NewClient(&redis.Options{Addr: o.Addr})
	defer store.Close()
	var r report
	tell := sync.OnceFunc(func() { fmt.Println("locked") })
	for ctx.Err() == nil {
		var failed error
		err := lock(ctx, "stock", func() { failed = r.section(context.WithoutCancel(ctx), store) })
		if failed != nil {
			return failed
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("lock: %w", err)
		}
		if r.Sections > 0 {
			tell()
		}
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// section reads, and writes one more. It counts the sections that it meets.
func (r *report) section(ctx context.Context, store *redis.Client) error {
	inside, err := store.Incr(ctx, insideKey).Result()
	if err != nil {
		return err
	}
	if inside != 1 {
		r.Overlaps++
	}
	units, err := store.Get(ctx, unitsKey).Int64()
	if err != nil && err != redis.Nil {
		return err
	}
	if err := store.Set(ctx, unitsKey, units+1, 0).Err(); err != nil {
		return err
	}
	r.Sections++
	return store.Decr(ctx, insideKey).Err()
}

// A process is one that works.
type process struct {
	worker *reexec.Worker
	locked chan struct{} // closed when it had its first lock
	last   chan report   // its report; closed when it has ended
}

func startProcess(t *testing.T, o order) *process {
	t.Helper()
	w, err := reexec.Start(t.Context(), workerEnv, o, os.Stderr, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{w, make(chan struct{}), make(chan report, 1)}
	go func() {
		defer close(p.last)
		for s := bufio.NewScanner(w.Out); s.Scan(); {
			var r report
			switch {
			case s.Text() == "locked":
				close(p.locked)
			case json.Unmarshal(s.Bytes(), &r) == nil:
				p.last <- r
			default:
				t.Errorf("%v says %q", o, s.Text())
			}
		}
	}()
	select {
	case <-p.locked:
	case <-p.last:
		t.Errorf("%v has ended: %v", o, w.Cmd.Wait())
	}
	return p
}

// stop tells the process to stop, as a deployment does.
func (p *process) stop(t *testing.T) report {
	t.Helper()
	if err := p.worker.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	last, ok := <-p.last
	if err := p.worker.Cmd.Wait(); err != nil || !ok {
		t.Errorf("a process has ended with %v, %v", err, ok)
	}
	return last
}

// change replaces three processes one by one, from kind to kind. It returns the sum of their
// reports, and the updates that were lost.
func change(t *testing.T, library string, kinds ...string) (all report, lost int64) {
	t.Helper()
	server := redistest.Start(t)
	store := server.Client(t)
	units := func() int64 {
		n, err := store.Get(t.Context(), unitsKey).Int64()
		if err != nil && err != redis.Nil {
			t.Fatal(err)
		}
		return n
	}
	between := int64(50) // sections, before the next process is replaced
	if *full {
		between = 300
	}
	var processes []*process
	for i, kind := range kinds {
		for j := range 3 {
			p := startProcess(t, order{library, kind, server.Addr})
			if i == 0 {
				processes = append(processes, p)
			} else { // the one that comes runs before the other one goes, as in a rolling deployment
				r := processes[j].stop(t)
				all.Sections, all.Overlaps = all.Sections+r.Sections, all.Overlaps+r.Overlaps
				processes[j] = p
			}
			then := units() + between
			await.Until(t, "the processes lock", func() bool { return units() >= then })
		}
	}
	for _, p := range processes {
		r := p.stop(t)
		all.Sections, all.Overlaps = all.Sections+r.Sections, all.Overlaps+r.Overlaps
	}
	return all, all.Sections - units()
}

// There and back in processes of the operating system; the old ones have the real library. Both
// comes between old and new.
func TestBoth_ARollingChangeOfProcesses(t *testing.T) {
	takes.Seconds(t)
	names, ways := []string{"redislock"}, [][]string{{"old", "both", "new", "both", "old"}}
	if *full {
		names = []string{"redislock", "redsync", "rueidislock"}
		ways = append(ways, []string{"old", "shim over both", "shim", "new", "shim over both", "old"})
	}
	for _, name := range names {
		for _, kinds := range ways {
			all, lost := change(t, name, kinds...)
			t.Logf("%s, %v: %d sections, %d overlaps, %d updates lost", name, kinds, all.Sections, all.Overlaps, lost)
			if all.Overlaps != 0 || lost != 0 || all.Sections == 0 {
				t.Error("old and new processes do not exclude each other")
			}
		}
		all, lost := change(t, name, "old", "new")
		t.Logf("%s, without Both: %d sections, %d overlaps, %d updates lost", name, all.Sections, all.Overlaps, lost)
		if all.Overlaps == 0 || lost == 0 {
			t.Error("nothing is lost without Both: the test sees nothing")
		}
	}
}
