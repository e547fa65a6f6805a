package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/reexec"
)

// order is what a worker process must know when it starts. It travels in the environment, as JSON.
type order struct {
	Process   int    `json:"process"` // from 1
	Redis     string `json:"redis"`
	Namespace string `json:"namespace"`
	Referees  string `json:"referees"` // file; for hot
	Profile   string `json:"profile"`  // file; empty: none

	Debounce time.Duration `json:"debounce"` // of clusters, for tests; 0: the library's default

	step func(step) // tells the parent how far a task is; nil: it does not ask
}

// step is how far a task is.
type step struct {
	Done  int `json:"done"`
	Total int `json:"total"`
}

// at tells the parent that done of total parts of a task were done. It is called by the goroutine that does the task.
func (o order) at(done, total int) {
	if o.step != nil {
		o.step(step{done, total})
	}
}

const orderEnv = "HOLDFAST_BENCH_ORDER"

// task is what a worker is told to do, one line of JSON on its stdin; one of the fields is set. The end of stdin ends the
// worker, so none outlives its parent for long.
type task struct {
	Hot     *hotTask     `json:"hot,omitempty"` // for shared, zipf and idle, too
	Cold    *coldTask    `json:"cold,omitempty"`
	Held    *heldTask    `json:"held,omitempty"`
	Own     *ownTask     `json:"own,omitempty"`
	Forward *forwardTask `json:"forward,omitempty"`
	HTTP    *httpTask    `json:"http,omitempty"`
	Latency *latencyTask `json:"latency,omitempty"`
	Growth  *growthTask  `json:"growth,omitempty"`
	Pace    *paceTask    `json:"pace,omitempty"`
	Stall   *stallTask   `json:"stall,omitempty"`
	Rows    *rowsTask    `json:"rows,omitempty"`
	Modes   *modesTask   `json:"modes,omitempty"` // the answer is in Hot
	Store   bool         `json:"store,omitempty"` // be a store
}

// answer is a worker's line of JSON for each task.
type answer struct {
	Hot     *hotResult     `json:"hot,omitempty"`
	Cold    *coldResult    `json:"cold,omitempty"`
	Held    *heldResult    `json:"held,omitempty"`
	Own     *ownResult     `json:"own,omitempty"`
	Forward *forwardResult `json:"forward,omitempty"`
	HTTP    *httpResult    `json:"http,omitempty"`
	Latency *latencyResult `json:"latency,omitempty"`
	Growth  *growthResult  `json:"growth,omitempty"`
	Pace    *paceResult    `json:"pace,omitempty"`
	Stall   *stallResult   `json:"stall,omitempty"`
	Rows    *rowsResult    `json:"rows,omitempty"`
	Store   string         `json:"store,omitempty"` // address
	Error   string         `json:"error,omitempty"`

	Step *step `json:"step,omitempty"` // not an answer yet
}

// closeTime is what a worker may take to give its locks back and end.
const closeTime = 5 * time.Second

var errStopped = errors.New("stopped by the end of stdin")

// workerMain is the whole life of a worker process. It returns the exit status.
func workerMain(text string) int {
	// A terminal sends Ctrl-C to all processes. Ending the workers is the parent's business, in order.
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	var o order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		debounce = o.Debounce
		err = work(o, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench worker %d: %v\n", o.Process, err)
		return 1
	}
	return 0
}

// work does the tasks that come from in until it ends.
func work(o order, in io.Reader, out io.Writer) (err error) {
	stop, err := profile(o.Profile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	tasks := make(chan task)
	go func() { // ends with in
		defer close(tasks)
		for d := json.NewDecoder(in); ; {
			var t task
			if d.Decode(&t) != nil {
				// The task under way has no parent to answer to. If it does not end, the process does.
				cancel(errStopped)
				time.AfterFunc(2*closeTime, func() { os.Exit(1) })
				return
			}
			tasks <- t
		}
	}()

	var h hotWorker
	defer func() { err = errors.Join(err, h.close()) }()
	answers := json.NewEncoder(out)
	o.step = func(s step) { _ = answers.Encode(answer{Step: &s}) } // a parent that is gone has closed stdin
	for t := range tasks {
		var a answer
		var failed error
		switch {
		case t.Hot != nil:
			a.Hot, failed = h.run(ctx, o, *t.Hot)
		case t.Cold != nil:
			a.Cold, failed = runCold(ctx, o, *t.Cold)
		case t.Held != nil:
			a.Held, failed = runHeld(ctx, o, *t.Held)
		case t.Own != nil:
			a.Own, failed = runOwn(ctx, o, *t.Own)
		case t.Forward != nil:
			a.Forward, failed = h.forward(ctx, o, *t.Forward)
		case t.HTTP != nil:
			a.HTTP, failed = runHTTP(ctx, o, *t.HTTP)
		case t.Latency != nil:
			a.Latency, failed = h.latency(ctx, o, *t.Latency)
		case t.Growth != nil:
			a.Growth, failed = h.grow(ctx, o, *t.Growth)
		case t.Pace != nil:
			a.Pace, failed = h.pace(ctx, o, *t.Pace)
		case t.Stall != nil:
			a.Stall, failed = h.stall(ctx, o, *t.Stall)
		case t.Rows != nil:
			a.Rows, failed = h.rows(ctx, o, *t.Rows)
		case t.Modes != nil:
			a.Hot, failed = h.mode(ctx, o, *t.Modes)
		case t.Store:
			a.Store, failed = h.serveStore()
		}
		if ctx.Err() != nil {
			return nil
		}
		if failed != nil {
			a.Error = failed.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
	return nil
}

func profile(file string) (stop func() error, err error) {
	if file == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// worker is a worker process as its parent sees it.
type worker struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	tasks *json.Encoder
	out   *json.Decoder

	progress *progress
}

// start starts a worker for a subject. When ctx ends, its stdin does, which makes it end by itself; if it does not, it
// is killed.
func (b *bench) start(ctx context.Context, subject string, o order) (*worker, error) {
	o.Redis, o.Namespace, o.Debounce = b.addr, b.prefix+"-"+subject, b.sizes.debounce
	if b.profile != "" {
		o.Profile = filepath.Join(b.profile, fmt.Sprintf("%s-%d.prof", subject, o.Process))
	}
	w, err := reexec.Start(ctx, orderEnv, o, b.stderr, 2*closeTime+time.Second)
	if err != nil {
		return nil, err
	}
	return &worker{w.Cmd, w.In, json.NewEncoder(w.In), json.NewDecoder(w.Out), b.progress}, nil
}

// taskLimit is how long a task, or a step of one, may take. What takes longer hangs.
const taskLimit = 5 * time.Minute

// do gives the worker a task and waits for its answer. A worker that hangs is killed: others shall be measured.
func (w *worker) do(t task) (a answer, err error) {
	var hung atomic.Bool
	limit := time.AfterFunc(taskLimit, func() {
		hung.Store(true)
		_ = w.cmd.Process.Kill() // it may have ended
	})
	defer limit.Stop()
	if err := w.tasks.Encode(t); err != nil {
		return a, err
	}
	for {
		a = answer{}
		if err := w.out.Decode(&a); err != nil {
			if hung.Load() {
				err = fmt.Errorf("it was killed after %v: %w", taskLimit, err)
			}
			return a, fmt.Errorf("worker %d: no answer: %w", w.cmd.Process.Pid, err)
		}
		if a.Step == nil {
			break
		}
		limit.Reset(taskLimit)
		w.progress.step("by turns", a.Step.Done, a.Step.Total)
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// stop ends the worker and waits for it.
func (w *worker) stop() error {
	_ = w.stdin.Close()
	return w.cmd.Wait()
}

// doAll gives all workers the same task, and returns their answers in the workers' order.
func doAll(ws []*worker, t task) ([]answer, error) {
	answers, errs := make([]answer, len(ws)), make([]error, len(ws))
	var wg sync.WaitGroup
	for i, w := range ws {
		wg.Go(func() { answers[i], errs[i] = w.do(t) })
	}
	wg.Wait()
	return answers, errors.Join(errs...)
}

// alone does a task in a worker of its own, so that its heap and its CPU time are its own.
func (b *bench) alone(ctx context.Context, subject string, t task) (answer, error) {
	w, err := b.start(ctx, subject, order{Process: 1})
	if err != nil {
		return answer{}, err
	}
	a, err := w.do(t)
	return a, errors.Join(err, w.stop())
}
