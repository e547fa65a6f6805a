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
)

// total is what some runs have shown.
type total struct {
	Runs                         uint64
	Took                         time.Duration // simulated
	Faults, Grants, Writes, Late int
	Violations                   int // runs that failed
}

func (t *total) add(r total) {
	t.Runs, t.Took = t.Runs+r.Runs, t.Took+r.Took
	t.Faults, t.Grants, t.Writes, t.Late = t.Faults+r.Faults, t.Grants+r.Grants, t.Writes+r.Writes, t.Late+r.Late
	t.Violations += r.Violations
}

// inWorkers shares the runs out among processes with one processor each: a scheduler that serves one processor, and collects
// garbage seldom, needs half as long for the many small steps of a simulation. It fails the test if any of them fails.
func inWorkers(t *testing.T, n int) (all total) {
	t.Helper()
	var mu sync.Mutex // protects all
	var work sync.WaitGroup
	for i := range n {
		work.Go(func() {
			args := append(slices.Clone(os.Args[1:]), "-test.run=^TestSimulation$", "-test.v=false", "-sim.workers=0",
				"-sim.seed="+strconv.FormatUint(*seed+uint64(i), 10), "-sim.step="+strconv.Itoa(n))
			cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
			cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=200MiB", "GODEBUG=asyncpreemptoff=1,adaptivestackstart=1",
				worker+"=1")
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			alive, err := cmd.StdinPipe() // a worker ends when this process does
			if err != nil {
				t.Error(err)
				return
			}
			defer alive.Close()
			if err := cmd.Run(); err != nil {
				t.Errorf("worker %d: %v\n%s", i, err, out.Bytes())
			}
			var its total
			_, line, ok := bytes.Cut(out.Bytes(), []byte(mark))
			if !ok || json.NewDecoder(bytes.NewReader(line)).Decode(&its) != nil {
				t.Errorf("worker %d: %s", i, out.Bytes())
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all.add(its)
		})
	}
	work.Wait()
	return all
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

// prepare is for what only some builds do before all tests.
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
