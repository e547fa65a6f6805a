package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// A sale is one rung's: a stock, and processes that sell it.
type sale struct {
	config
	rung      rung
	namespace string
	redisAddr string
	store     *storeServer
	progress  *progress
	stderr    io.Writer
}

// An outcome is what all processes of a sale did, and what the database says about it.
type outcome struct {
	rung      rung
	tally     tally
	processes []int64 // units sold by each
	stock     int64   // units of each SKU at the start
	oversold  int64
	commands  int64
	elapsed   time.Duration
}

// What a sale may take besides its duration.
const (
	startTime = 30 * time.Second // to start the processes and open the locks
	closeTime = 5 * time.Second  // to give back and close the locks
)

// run sells until the time is up or all is sold. When it returns, no worker is left.
func (s *sale) run(ctx context.Context) (outcome, error) {
	if err := s.fill(); err != nil {
		return outcome{}, err
	}
	limit := startTime + s.duration + 2*closeTime
	ctx, cancelTimeout := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %v", limit))
	defer cancelTimeout()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	o := outcome{rung: s.rung, stock: s.stock, tally: newTally(s.skus), processes: make([]int64, s.config.processes)}
	reports := make(chan report)
	var stdins []io.Writer
	for i := range s.config.processes {
		stdin, err := s.start(ctx, i, reports)
		if err != nil {
			cancel(err)
			break
		}
		stdins = append(stdins, stdin)
	}

	// Every worker ends with a report that says so, in a good run and in a bad one: this loop is left
	// when all have ended.
	ready, told, results := 0, 0, 0
	var begin time.Time
	for left := len(stdins); left > 0; {
		r := <-reports
		switch {
		case r.ended:
			left--
			if r.err != nil {
				cancel(fmt.Errorf("worker %d: %w", r.process, r.err))
			}
		case r.Ready:
			if ready++; ready == s.config.processes {
				begin = time.Now()
				for _, stdin := range stdins {
					if _, err := io.WriteString(stdin, "go\n"); err != nil {
						cancel(err)
					}
				}
			}
		case r.Result != nil:
			results++
			o.processes[r.process] = r.Result.Tally.sold()
			o.tally.add(r.Result.Tally)
			o.commands += r.Result.Commands
			o.elapsed = max(o.elapsed, r.Result.Elapsed)
		default:
			o.processes[r.process] = r.Sold
			if told++; told%s.config.processes == 0 { // all were heard about equally often
				s.progress.show(time.Since(begin), o.processes)
			}
		}
	}
	s.progress.end()
	if ctx.Err() != nil {
		return outcome{}, context.Cause(ctx)
	}
	if results != s.config.processes {
		return outcome{}, fmt.Errorf("%d results from %d workers", results, s.config.processes)
	}
	var err error
	o.oversold, err = s.audit(o.tally.Sold)
	return o, err
}

// A report is a worker's message, or, with ended, the end of its process.
type report struct {
	process int
	message
	ended bool
	err   error
}

// start starts a worker, whose messages go to reports, and returns its stdin. When ctx ends, the
// worker's stdin does, which makes it end by itself; if it does not, it is killed.
func (s *sale) start(ctx context.Context, process int, reports chan<- report) (io.Writer, error) {
	text, err := json.Marshal(order{
		Process:    process,
		Rung:       s.rung.name,
		Redis:      s.redisAddr,
		Namespace:  s.namespace,
		Store:      s.store.addr,
		SKUs:       s.skus,
		Goroutines: s.goroutines,
		Duration:   s.duration,
	})
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), orderEnv+"="+string(text))
	cmd.Stderr = s.stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Cancel = stdin.Close
	cmd.WaitDelay = closeTime + time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		messages := json.NewDecoder(stdout)
		for {
			r := report{process: process}
			if messages.Decode(&r.message) != nil {
				break // the end of stdout; why, Wait says
			}
			reports <- r
		}
		reports <- report{process: process, ended: true, err: cmd.Wait()}
	}()
	return stdin, nil
}

// fill puts a new stock on the shelves.
func (s *sale) fill() error {
	statements := []request{
		{SQL: `CREATE TABLE IF NOT EXISTS stock (sku TEXT PRIMARY KEY, units INTEGER NOT NULL, fence INTEGER NOT NULL)`},
		{SQL: `DELETE FROM stock`},
	}
	for i := range s.skus {
		statements = append(statements, request{
			SQL:  `INSERT INTO stock (sku, units, fence) VALUES (?, ?, 0)`,
			Args: []any{skuName(i), s.stock},
		})
	}
	for _, req := range statements {
		if a := s.store.do(req); a.Error != "" {
			return errors.New(a.Error)
		}
	}
	return nil
}

// audit compares the sales, which the sellers counted each for itself, with the stock that is left,
// and returns how many units were sold that were not there: of each SKU, sold must be what is missing.
func (s *sale) audit(sold []int64) (oversold int64, err error) {
	for i, n := range sold {
		a := s.store.do(request{Query: true, SQL: readUnits, Args: []any{skuName(i)}})
		if a.Error != "" {
			return 0, errors.New(a.Error)
		}
		left, ok := a.Rows[0][0].(int64)
		if !ok {
			return 0, fmt.Errorf("%s: units are %v", skuName(i), a.Rows[0][0])
		}
		// A lost update can also leave fewer units than the sales account for.
		oversold += max(n-(s.stock-left), (s.stock-left)-n)
	}
	return oversold, nil
}
