package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/internal/dbtest"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// A result is a run of a variant.
type result struct {
	Resource string // the database, or the place of the counter
	Variant  string
	Guarded  bool
	Stops    int64
	Lost     int64 // acknowledged updates that the counter does not have
	tally
}

// runAll runs the variants with these names, or all, on a database.
func runAll(ctx context.Context, kind dbtest.Kind, names []string, workers int, duration time.Duration) (rs []result, err error) {
	dir, err := os.MkdirTemp("", "fence-chaos-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	server, err := redistest.New(dir)
	if err != nil {
		return nil, err
	}
	defer server.Kill()
	db, err := dbtest.Start(ctx, kind)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for i, v := range variants {
		elsewhere := v.resource != "" && kind != dbtest.SQLite
		if len(names) > 0 && !slices.Contains(names, v.name) || elsewhere {
			continue
		}
		r, err := run(ctx, db, v, workers, order{
			Kind: kind, DSN: db.DSN, Redis: server.Addr, Run: fmt.Sprintf("chaos%d", i), Variant: i, Duration: duration,
			File: filepath.Join(dir, fmt.Sprint("counter", i)),
		})
		if err != nil {
			return rs, fmt.Errorf("%s, %s: %w", kind, v.name, err)
		}
		rs = append(rs, r)
	}
	return rs, nil
}

func run(ctx context.Context, d *dbtest.Database, v variant, workers int, o order) (result, error) {
	r := result{Resource: cmp.Or(v.resource, string(o.Kind)), Variant: v.name, Guarded: v.guarded}
	db, err := d.Open(nil)
	if err != nil {
		return r, err
	}
	defer db.Close()
	if err := (fence.Table{Dialect: sqls[o.Kind].dialect}).EnsureTable(ctx, db); err != nil {
		return r, err
	}
	for _, text := range []string{
		`CREATE TABLE IF NOT EXISTS counters (name VARCHAR(100) PRIMARY KEY, n BIGINT NOT NULL, fence BIGINT)`,
		`DELETE FROM counters`, `DELETE FROM fences`, `INSERT INTO counters (name, n) VALUES ('a', 0)`,
	} {
		if _, err := db.ExecContext(ctx, text); err != nil {
			return r, err
		}
	}
	tallies := make([]tally, workers)
	var stops atomic.Int64
	group, running := errgroup.WithContext(ctx)
	for i := range tallies {
		o := o
		o.Rate = 0.01 * float64(i) // one never stops, the others more and more often
		group.Go(func() error { return child(running, o, &tallies[i], &stops) })
	}
	if err := group.Wait(); err != nil {
		return r, err
	}
	for _, t := range tallies {
		r.Done += t.Done
		r.Stale += t.Stale
		r.Failed += t.Failed
		r.Unknown += t.Unknown
		for text, n := range t.Errors {
			if r.Errors == nil {
				r.Errors = make(map[string]int64)
			}
			r.Errors[text] += n
		}
	}
	r.Stops = stops.Load()
	var n int64
	if v.count != nil {
		n, err = v.count(ctx, o)
	} else {
		err = db.QueryRowContext(ctx, `SELECT n FROM counters`).Scan(&n)
	}
	if err != nil {
		return r, err
	}
	r.Lost = r.Done - n
	if r.Lost < 0 {
		r.Lost = min(0, r.Lost+r.Unknown) // those may have been executed
	}
	return r, nil
}

// child runs a worker process, and has it go on some time after each of its stops.
func child(ctx context.Context, o order, t *tally, stops *atomic.Int64) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	out, err := os.CreateTemp("", "fence-chaos-worker-") // a pipe would need a Wait that sees no stops
	if err != nil {
		return err
	}
	defer func() { _ = out.Close(); _ = os.Remove(out.Name()) }()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	pid := cmd.Process.Pid
	release := context.AfterFunc(ctx, func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	defer release()
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil); err != nil && !errors.Is(err, syscall.EINTR) {
			return err
		}
		if status.Exited() || status.Signaled() {
			break
		}
		if status.Stopped() {
			stops.Add(1)
			time.Sleep(stopTime)
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				return err
			}
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	answer, err := os.ReadFile(out.Name())
	if err != nil {
		return err
	}
	if status.ExitStatus() != 0 || json.NewDecoder(bytes.NewReader(answer)).Decode(t) != nil {
		return fmt.Errorf("a worker ended with %d: %s", status.ExitStatus(), answer)
	}
	return nil
}
