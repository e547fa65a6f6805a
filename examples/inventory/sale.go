package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/reexec"
)

// A sale is one rung's: a stock, and processes that sell it.
type sale struct {
	config
	rung      rung
	namespace string
	redisAddr string
	place     place
	store     []string // where the arbiter is, if it was started
	db        database
	progress  *progress
	stderr    io.Writer
}

// An outcome is the tally of all processes of a sale, and the database's audit.
type outcome struct {
	rung      rung
	tally     tally
	processes []int64 // units sold by each
	stock     int64   // units of each SKU at the start
	oversold  int64   // of a catalogue: changes that were lost
	commands  int64
	elapsed   time.Duration
	killed    int // processes, and as many were started
}

// Limits of a sale besides its duration.
const (
	startTime = 30 * time.Second // to start the processes and open the locks
	closeTime = 5 * time.Second  // to give back and close the locks, when the sale was interrupted
	calmTime  = 20 * time.Second // the same at its end, on a machine that has much else to do
)

// run sells until the time is up or all is sold. When it returns, no worker is left.
func (s *sale) run(ctx context.Context) (outcome, error) {
	fill := s.fill
	if s.catalogue {
		fill = s.fillCatalogue
	}
	if err := fill(ctx); err != nil {
		return outcome{}, err
	}
	limit := startTime + s.duration + calmTime + closeTime
	ctx, cancelTimeout := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %v", limit))
	defer cancelTimeout()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	o := outcome{rung: s.rung, stock: s.stock, tally: newTally(s.skus), processes: make([]int64, s.config.processes)}
	reports := make(chan report)
	workers := make([]*process, 0, s.config.processes) // by number; a later one takes the place of one that was killed
	all := 0                                           // that have not ended yet
	start := func(number int, late bool) *process {
		w, err := s.start(ctx, number, late, reports)
		if err != nil {
			cancel(err)
			return nil
		}
		all++
		return w
	}
	for i := range s.config.processes {
		w := start(i, false)
		if w == nil {
			break
		}
		workers = append(workers, w)
	}

	// Every worker ends with a report that says so, in a good run and in a bad one: this loop is
	// left when all have ended.
	ready, told := 0, 0
	var begin time.Time
	var chaos <-chan time.Time // when to kill
	for all > 0 {
		var r report
		select {
		case r = <-reports:
		case <-chaos:
			if victim := pick(workers); victim != nil && ctx.Err() == nil {
				victim.kill()
				o.killed++
				if w := start(victim.number, true); w != nil {
					workers[victim.number] = w
				}
			}
			if chaos = nil; time.Since(begin)+chaosEvery < s.duration {
				chaos = time.After(chaosEvery)
			}
			continue
		}
		w := r.process
		switch {
		case r.ended:
			all--
			switch {
			case w.killed && !w.done:
				o.processes[w.number] += w.sold
				o.commands += w.commands
			case w.killed:
			case r.err != nil:
				cancel(fmt.Errorf("worker %d: %w", w.number, r.err))
			case !w.done:
				cancel(fmt.Errorf("worker %d: no result", w.number))
			}
		case r.Ready && w.late:
			w.start(max(s.duration-time.Since(begin), time.Millisecond), cancel)
		case r.Ready:
			if ready++; ready == s.config.processes {
				begin = time.Now()
				for _, w := range workers {
					w.start(s.duration, cancel)
				}
				if s.chaos {
					chaos = time.After(chaosFirst)
				}
			}
		case r.Result != nil:
			w.done, w.sold = true, 0
			o.processes[w.number] += r.Result.Tally.sold()
			o.tally.add(r.Result.Tally)
			o.commands += r.Result.Commands
			o.elapsed = max(o.elapsed, r.Result.Elapsed)
			if s.chaos {
				o.elapsed = time.Since(begin)
			}
		default:
			w.sold, w.commands = r.Sold, r.Commands
			if told++; told%s.config.processes == 0 { // all were heard about equally often
				sold := slices.Clone(o.processes)
				for _, w := range workers {
					sold[w.number] += w.sold
				}
				s.progress.show(time.Since(begin), sold)
			}
		}
	}
	s.progress.end()
	if ctx.Err() != nil {
		return outcome{}, context.Cause(ctx)
	}
	if s.chaos {
		// Only the database knows the sales of killed processes.
		var err error
		if o.tally.Sold, err = s.counted(ctx); err != nil {
			return outcome{}, err
		}
	}
	var err error
	if s.catalogue {
		o.oversold, err = s.auditCatalogue(ctx, o.tally.Changed)
	} else {
		o.oversold, err = s.audit(ctx, o.tally.Sold)
	}
	return o, err
}

// A process is a worker as its parent sees it.
type process struct {
	number int
	late   bool // it takes the place of one that was killed
	cmd    *exec.Cmd
	stdin  io.Writer

	sold     int64 // as it has told, if its result is not there
	commands int64
	killed   bool
	done     bool // its result is there
}

// start begins the worker's sale.
func (w *process) start(d time.Duration, cancel context.CancelCauseFunc) {
	if _, err := fmt.Fprintln(w.stdin, d); err != nil && !w.killed {
		cancel(err)
	}
}

// A report is a worker's message, or, with ended, the end of its process.
type report struct {
	process *process
	message
	ended bool
	err   error
}

// start starts a worker. Its messages go to reports. When ctx ends, the worker's stdin does, which
// makes it end by itself; if it does not, it is killed.
func (s *sale) start(ctx context.Context, number int, late bool, reports chan<- report) (*process, error) {
	started, err := reexec.Start(ctx, orderEnv, order{
		Process:    number,
		Processes:  s.config.processes,
		Chaos:      s.chaos,
		Catalogue:  s.catalogue,
		Reads:      s.reads,
		Late:       late,
		Rung:       s.rung.name,
		Redis:      s.redisAddr,
		Namespace:  s.namespace,
		Place:      s.place,
		Arbiter:    s.arbiter,
		Store:      s.store,
		SKUs:       s.skus,
		Goroutines: s.goroutines,
		Duration:   s.duration,
	}, s.stderr, closeTime+time.Second)
	if err != nil {
		return nil, err
	}
	cmd := started.Cmd
	w := &process{number: number, late: late, cmd: cmd, stdin: started.In}
	go func() {
		messages := json.NewDecoder(started.Out)
		for {
			r := report{process: w}
			if messages.Decode(&r.message) != nil {
				break // the end of stdout; why, Wait says
			}
			reports <- r
		}
		reports <- report{process: w, ended: true, err: cmd.Wait()}
	}()
	return w, nil
}
