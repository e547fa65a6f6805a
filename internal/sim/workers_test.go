package sim

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/model/spec"
)

// total is the sum of some runs' results.
type total struct {
	Runs                         uint64
	Took                         time.Duration // simulated
	Faults, Grants, Writes, Late int
	Violations                   int    // runs that failed
	Local, Shrunk                uint64 // as coord.PermitStats
	Found                        int    // circles of callers
	Events                       [spec.Kinds]int
	Unknown, Carried, Ended      int // as Result
	Watched, Cleaned, Dequeued   int
	Outside
}

func (t *total) plus(r total) {
	t.Runs, t.Took = t.Runs+r.Runs, t.Took+r.Took
	t.Faults, t.Grants, t.Writes, t.Late = t.Faults+r.Faults, t.Grants+r.Grants, t.Writes+r.Writes, t.Late+r.Late
	t.Violations += r.Violations
	t.Local, t.Shrunk = t.Local+r.Local, t.Shrunk+r.Shrunk
	t.Found += r.Found
	for k, n := range r.Events {
		t.Events[k] += n
	}
	t.Unknown, t.Carried, t.Ended = t.Unknown+r.Unknown, t.Carried+r.Carried, t.Ended+r.Ended
	t.Watched, t.Cleaned, t.Dequeued = t.Watched+r.Watched, t.Cleaned+r.Cleaned, t.Dequeued+r.Dequeued
	t.Outside.add(r.Outside)
}

// inWorkers shares the runs out among processes with one processor each: a scheduler that serves
// one processor, and collects garbage seldom, needs half as long for the many small steps of a
// simulation. It fails the test if any of them fails.
func inWorkers(t *testing.T, n int) (all total) {
	t.Helper()
	var mu sync.Mutex // protects all
	var work sync.WaitGroup
	for i := range n {
		work.Go(func() {
			its := inShifts(t, i, n)
			mu.Lock()
			defer mu.Unlock()
			all.plus(its)
		})
	}
	work.Wait()
	return all
}

// shift is how long a worker lives: the runtime of Go 1.26 forgets to free some 30 bytes whenever
// the counter of a sync.WaitGroup in a bubble comes down to zero (synctest_disassociate). That is
// 26 MB a minute. It counts for the limit of the memory, which leaves less and less of it to
// garbage: after 20 minutes a run took more than twice as long.
const shift = time.Minute

// inShifts makes every n-th run, from the i-th one on, in one worker after the other.
func inShifts(t *testing.T, i, n int) (all total) {
	begin, first, runs := time.Now(), *seed+uint64(i), *most
	for {
		args := []string{"-sim.seed=" + strconv.FormatUint(first, 10), "-sim.step=" + strconv.Itoa(n), "-sim.runs=" + strconv.Itoa(runs)}
		last := *lasts == 0
		if !last {
			left := *lasts - time.Since(begin)
			last = left <= shift
			args = append(args, "-sim.for="+max(min(left, shift), 1).String())
		}
		its, ok := inWorker(t, args)
		all.plus(its)
		if !ok || last || its.Violations > 0 {
			return all
		}
		first += its.Runs * uint64(n)
		if runs > 0 {
			if runs -= int(its.Runs) * n; runs <= 0 {
				return all
			}
		}
	}
}

// inWorker makes the runs of one process, which has this one's flags but for args.
func inWorker(t *testing.T, args []string) (its total, ok bool) {
	args = append(append(slices.Clone(os.Args[1:]), "-test.run=^TestSimulation$", "-test.v=false", "-sim.workers=0"), args...)
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=200MiB", "GODEBUG=asyncpreemptoff=1,adaptivestackstart=1",
		worker+"=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	alive, err := cmd.StdinPipe() // a worker ends when this process does
	if err != nil {
		t.Error(err)
		return its, false
	}
	defer alive.Close()
	err = cmd.Run()
	if err != nil {
		t.Errorf("worker %v: %v\n%s", args, err, out.Bytes())
	}
	_, line, found := bytes.Cut(out.Bytes(), []byte(mark))
	if !found || json.NewDecoder(bytes.NewReader(line)).Decode(&its) != nil {
		t.Errorf("worker %v: no result in\n%s", args, out.Bytes())
		return its, false
	}
	return its, err == nil
}

const worker, mark = "HOLDFAST_SIM_WORKER", "total: "

// report tells a worker's result.
func (t total) report() {
	line, err := json.Marshal(t)
	if err != nil {
		panic(err)
	}
	_, _ = os.Stdout.WriteString("\n" + mark + string(line) + "\n")
}

// prepare runs before all tests. Only some builds need it.
var prepare = func() {}

func TestMain(m *testing.M) {
	if os.Getenv(worker) != "" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
	}
	flag.Parse()
	prepare()
	os.Exit(m.Run())
}
