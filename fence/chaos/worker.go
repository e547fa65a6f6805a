package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/internal/dbtest"
)

// The calls of go-redis return as errors all that it would print here.
func init() { logging.Disable() }

const (
	workerEnv = "FENCE_CHAOS_WORKER"
	ttl       = 3 * time.Second // of sessions
	stopTime  = 4 * time.Second // length of a stop: the lock is lost, and others have had it
)

// An order tells a worker its task.
type order struct {
	Kind     dbtest.Kind
	DSN      string
	Redis    string
	Run      string // the namespace
	Variant  int    // of variants
	File     string // of variants without a database
	Duration time.Duration
	Rate     float64 // share of the statements that the worker stops before
}

// A tally counts the sections of a worker by their ends.
type tally struct {
	Done    int64 // updates that were acknowledged
	Stale   int64 // refused as stale
	Failed  int64 // ended with another error that leaves nothing behind: the lock was lost, or not to be had
	Unknown int64
	Errors  map[string]int64 `json:",omitempty"` // that were not expected
}

type worker struct {
	order
	sql    statements
	db     *sql.DB
	redis  *redis.Client
	locks  *coord.Coordinator
	table  fence.Table
	column fence.Column
	tally  tally
	first  atomic.Int64 // statements until the first stop; sections come one after another
}

// work is a worker process. It returns its exit status.
func work(text string) int {
	var w worker
	err := json.Unmarshal([]byte(text), &w.order)
	if err == nil {
		err = w.run(context.Background())
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(w.tally)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	return 0
}

func (w *worker) run(ctx context.Context) error {
	client := redis.NewClient(&redis.Options{Addr: w.Redis, ContextTimeoutEnabled: true})
	defer client.Close()
	w.redis = client
	var err error
	start, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if w.locks, err = coord.New(start, redisarbiter.New(client, &redisarbiter.Options{ColdStart: true}), &coord.Options{
		Namespace: w.Run, SessionTTL: ttl, CallTimeout: ttl / 3,
	}); err != nil {
		return err
	}
	defer w.locks.Close(ctx)
	d := &dbtest.Database{Kind: w.Kind, DSN: w.DSN}
	if w.db, err = d.Open(w.gate); err != nil {
		return err
	}
	defer w.db.Close()
	w.sql = sqls[w.Kind]
	w.first.Store(1 + rand.Int64N(5))
	w.table = fence.Table{Dialect: w.sql.dialect}
	w.column = fence.Column{Dialect: w.sql.dialect, Table: "counters", Key: "name"}
	return w.loop(ctx, variants[w.Variant])
}

// gate stops this process before some of the statements, until the parent has it go on. One of the
// first statements is among them, so that each run has a stop.
func (w *worker) gate(string) error {
	if n := w.first.Add(-1); w.Rate > 0 && (n == 0 || rand.Float64() < w.Rate) {
		return syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
	return nil
}

func (w *worker) loop(ctx context.Context, v variant) error {
	ctx, cancel := context.WithTimeout(ctx, w.Duration)
	defer cancel()
	for ctx.Err() == nil {
		// A section that the end cuts off could have an outcome that is not known.
		err := v.section(context.WithoutCancel(ctx), w)
		var loss *coord.LossError
		switch {
		case err == nil, errors.Is(err, errDone):
			w.tally.Done++
		case errors.Is(err, fence.ErrUnknown):
			w.tally.Unknown++
		case errors.Is(err, fence.ErrStale):
			w.tally.Stale++
		case errors.As(err, &loss), errors.Is(err, context.Canceled), errors.Is(err, coord.ErrUnavailable):
			w.tally.Failed++
		default:
			if w.tally.Errors == nil {
				w.tally.Errors = make(map[string]int64)
			}
			w.tally.Errors[err.Error()]++
		}
	}
	return nil
}

// errDone tells through Do that a section's write was acknowledged: Do may report that the lock was
// lost after that.
var errDone = errors.New("committed")

// commit commits, and returns errDone.
func (w *worker) commit(tx *sql.Tx) error {
	err := tx.Commit()
	switch {
	case err == nil:
		return errDone
	case errors.Is(err, sql.ErrTxDone): // rolled back when the context ended
		return err
	}
	return unknown(err)
}

// unknown is the error of a write without an answer: the context may have ended after the server
// had executed it.
func unknown(err error) error { return fmt.Errorf("%w: %w", fence.ErrUnknown, err) }
