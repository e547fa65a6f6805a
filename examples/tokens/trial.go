package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os/exec"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/reexec"
)

// Limits of a trial besides its work.
const (
	startTime = 20 * time.Second // to start the processes
	closeTime = 3 * time.Second  // to end them
	killTime  = 15 * time.Second // for others to get over a process that was killed
)

// A trial is one rung's.
type trial struct {
	options
	rung     rung
	order    order // but for the worker's number
	provider *provider
	operator keeper // the user that logs in
	stderr   io.Writer
	reports  chan report
	cancel   context.CancelCauseFunc

	mu       sync.Mutex // protects the fields below
	workers  []*process // by number; a later one takes the place of one that was killed
	starting int        // that are about to take such a place
	stopped  bool
	killed   int
}

// An outcome is the result of a trial.
type outcome struct {
	rung     rung
	counts   counts
	result   result
	killed   int // processes
	doubts   int
	accounts int
	elapsed  time.Duration
}

// A process is a worker as its parent sees it.
type process struct {
	number int
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	exited chan struct{} // closed when it has
	killed bool          // protected by trial.mu
	begun  bool          // it was told to; of the loop in collect, as the fields below
	done   bool          // its result is there
}

// A report is a worker's message. With ended it is the end of its process. With started another
// process is there in a killed one's place, or none.
type report struct {
	process *process
	message
	started, ended bool
	err            error
}

// try runs a rung. When it returns, no worker is left.
func try(ctx context.Context, o options, r rung, stderr io.Writer) (x outcome, err error) {
	addr, end, err := startRedis()
	if err != nil {
		return x, fmt.Errorf("embedded Redis: %w", err)
	}
	defer end()
	var accounts []string
	for i := range o.accounts {
		accounts = append(accounts, fmt.Sprint("account-", i+1))
	}
	p := newProvider(o.grace, accounts, o.expiries)
	server := httptest.NewServer(p)
	defer server.Close()

	// Each cycle of an account takes less than a token's life.
	limit := startTime + time.Duration(o.expiries/o.accounts+2)*2*life
	if o.chaos {
		limit += time.Duration(kills) * killTime
	}
	ctx, cancelTimeout := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %v", limit))
	defer cancelTimeout()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	t := &trial{
		options: o, rung: r, provider: p, stderr: stderr, cancel: cancel,
		order: order{
			Rung: r.name, Redis: addr, Provider: server.URL, Namespace: "tokens",
			Accounts: accounts, Goroutines: o.goroutines, Grace: o.grace,
		},
		reports: make(chan report), workers: make([]*process, o.processes),
	}
	client := newRedisClient(addr)
	defer client.Close()
	if t.operator, err = r.open(t.order, client, server.Client()); err != nil {
		return x, err
	}
	defer t.operator.Close()
	for _, a := range accounts {
		if err := t.login(ctx, a); err != nil {
			return x, err
		}
	}
	if o.chaos {
		p.rotated = func(worker, n int) bool { return t.mayKill(ctx, worker, n) }
	}
	return t.collect(ctx)
}

// login logs the customer in again.
func (t *trial) login(ctx context.Context, account string) error {
	ctx, cancel := context.WithTimeout(ctx, killTime)
	defer cancel()
	if err := t.operator.Replace(ctx, account, t.provider.login(account)); err != nil {
		return fmt.Errorf("log in %s again: %w", account, err)
	}
	return nil
}

// collect starts the workers, and returns when all have ended.
func (t *trial) collect(ctx context.Context) (outcome, error) {
	x := outcome{rung: t.rung, accounts: t.accounts}
	for i := range t.workers {
		t.start(ctx, i)
	}
	type doubt struct {
		account string
		fence   uint64
	}
	seen := make(map[doubt]bool)
	logins := make(map[string]time.Time)
	var begin time.Time
	ready, done := 0, t.provider.done
	for t.running() > 0 {
		var r report
		select {
		case r = <-t.reports:
		case <-done:
			x.elapsed = time.Since(begin)
			x.counts = t.provider.counts() // later requests were not asked for
			t.stop()
			done = nil
			continue
		}
		w := r.process
		switch {
		case r.started:
			t.started()
		case r.ended:
			if t.ended(w) {
				continue // it was killed
			}
			switch {
			case r.err != nil:
				t.cancel(fmt.Errorf("worker %d: %w", w.number, r.err))
			case w.begun && !w.done:
				t.cancel(fmt.Errorf("worker %d: no result", w.number))
			}
		case r.Ready:
			if ready++; ready < t.processes {
				continue
			}
			if ready == t.processes {
				begin = time.Now()
			}
			t.begin(w, ready == t.processes)
		case r.Result != nil:
			w.done = true
			x.result.add(*r.Result)
		case done == nil || ctx.Err() != nil:
		case r.Fence != 0 && !seen[doubt{r.LoggedOut, r.Fence}]:
			seen[doubt{r.LoggedOut, r.Fence}] = true
			x.doubts++
			if err := t.login(ctx, r.LoggedOut); err != nil {
				t.cancel(err)
			}
		case r.Fence == 0 && time.Since(logins[r.LoggedOut]) > life/2: // all of them tell
			if err := t.login(ctx, r.LoggedOut); err != nil {
				t.cancel(err)
			}
			logins[r.LoggedOut] = time.Now()
		}
	}
	t.mu.Lock()
	x.killed = t.killed
	t.mu.Unlock()
	if ctx.Err() != nil {
		return x, context.Cause(ctx)
	}
	if done != nil {
		return x, errors.New("all workers have ended too early")
	}
	return x, nil
}

func (r *result) add(other result) {
	r.Calls += other.Calls
	r.Refused += other.Refused
	r.Failed += other.Failed
	if r.Failure == "" {
		r.Failure = other.Failure
	}
}

// start starts a worker. Its messages go to t.reports. When ctx ends, the worker's stdin does,
// which makes it end by itself; if it does not, it is killed.
func (t *trial) start(ctx context.Context, number int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w, err := t.launch(ctx, number)
	if err != nil {
		t.cancel(err)
		return
	}
	t.workers[number] = w
	if t.stopped {
		w.stdin.Close()
	}
}

func (t *trial) launch(ctx context.Context, number int) (*process, error) {
	o := t.order
	o.Worker = number
	started, err := reexec.Start(ctx, orderEnv, o, t.stderr, 2*closeTime)
	if err != nil {
		return nil, err
	}
	cmd := started.Cmd
	w := &process{number: number, cmd: cmd, stdin: started.In, exited: make(chan struct{})}
	go func() {
		messages := json.NewDecoder(started.Out)
		for {
			r := report{process: w}
			if messages.Decode(&r.message) != nil {
				break // the end of stdout; why, Wait says
			}
			t.reports <- r
		}
		err := cmd.Wait()
		close(w.exited)
		t.reports <- report{process: w, ended: true, err: err}
	}()
	return w, nil
}

// begin lets workers begin: all of them, or one that came later. One that was ready only after stop
// ends without a result.
func (t *trial) begin(one *process, all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return
	}
	for _, w := range t.workers {
		if w != nil && (all || w == one) {
			w.begun = true
			_, _ = fmt.Fprintln(w.stdin) // if it has ended, that will be seen
		}
	}
}

// stop tells all workers to end.
func (t *trial) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	for _, w := range t.workers {
		if w != nil {
			w.stdin.Close()
		}
	}
}

// ended takes a worker out, and reports whether it was killed.
func (t *trial) ended(w *process) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.workers[w.number] == w {
		t.workers[w.number] = nil
	}
	return w.killed
}

func (t *trial) started() {
	t.mu.Lock()
	t.starting--
	t.mu.Unlock()
}

func (t *trial) running() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.workers {
		if w != nil {
			n++
		}
	}
	return n + t.starting
}
