package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/histogram"
)

// An order has the settings of a worker process. It travels in the environment, as JSON.
type order struct {
	Process    int           `json:"process"`
	Processes  int           `json:"processes"`
	Rung       string        `json:"rung"`
	Redis      string        `json:"redis"`
	Namespace  string        `json:"namespace"`
	Place      place         `json:"place"`
	Arbiter    string        `json:"arbiter"`
	Store      []string      `json:"store"` // where the arbiter is
	SKUs       int           `json:"skus"`
	Goroutines int           `json:"goroutines"`
	Duration   time.Duration `json:"duration"`
	Chaos      bool          `json:"chaos"` // processes are killed
	Catalogue  bool          `json:"catalogue"`
	Reads      int           `json:"reads"` // of a catalogue, for each change
	Late       bool          `json:"late"`  // it takes the place of one that was
}

// sessionTTL is the time until a killed process's locks are free.
func (o order) sessionTTL() time.Duration {
	if o.Arbiter == "s3" {
		return 20 * time.Second // the shortest that it does not refuse
	}
	if o.Chaos {
		return 5 * time.Second
	}
	return 10 * time.Second // Holdfast's default
}

const orderEnv = "HOLDFAST_INVENTORY_ORDER"

// A message is a worker's line of JSON to its parent: that it is ready, then now and then the units
// sold and the commands sent, then its result.
type message struct {
	Ready    bool    `json:"ready,omitempty"`
	Sold     int64   `json:"sold,omitempty"`
	Commands int64   `json:"commands,omitempty"`
	Result   *result `json:"result,omitempty"`
}

// maxConns bounds the connections of all processes to the database: PostgreSQL's default is 100.
const maxConns = 80

const messageInterval = 200 * time.Millisecond

// A result is one process's part of the sale.
type result struct {
	Tally    tally         `json:"tally"`
	Elapsed  time.Duration `json:"elapsed"`
	Commands int64         `json:"commands"` // sent to Redis meanwhile
}

// A tally adds up sales: those of a goroutine, of a process, of all.
type tally struct {
	Sold     []int64             `json:"sold"`     // updates that the database confirmed, by SKU; of a catalogue: look-ups
	Changed  int64               `json:"changed"`  // prices
	Torn     int64               `json:"torn"`     // look-ups that saw a change half done
	Rejected int64               `json:"rejected"` // sales with a token that was not above the last one
	Failed   int64               `json:"failed"`   // calls that returned an error
	Failure  string              `json:"failure"`  // one of the errors
	Waits    histogram.Histogram `json:"waits"`    // for the lock; those that the end of the sale cut off, too
}

func newTally(skus int) tally { return tally{Sold: make([]int64, skus)} }

func (t *tally) add(other tally) {
	for i, n := range other.Sold {
		t.Sold[i] += n
	}
	t.Changed += other.Changed
	t.Torn += other.Torn
	t.Rejected += other.Rejected
	t.fail(other.Failed, other.Failure)
	t.Waits.Merge(&other.Waits)
}

func (t *tally) fail(n int64, failure string) {
	t.Failed += n
	if t.Failure == "" {
		t.Failure = failure
	}
}

func (t *tally) sold() int64 {
	var sum int64
	for _, n := range t.Sold {
		sum += n
	}
	return sum
}

// workerMain is the whole life of a worker process. It returns the exit status. A line on stdin
// starts the sale, and says how long it takes; the end of stdin ends it, so no worker outlives its
// parent for long.
func workerMain(text string) int {
	// A terminal sends Ctrl-C to all processes. Ending the workers is the parent's business, in
	// order.
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	started := make(chan time.Duration, 1)
	go func() { // ends with stdin, or with the process
		in := bufio.NewReader(os.Stdin)
		if line, err := in.ReadString('\n'); err == nil {
			if d, err := time.ParseDuration(strings.TrimSpace(line)); err == nil {
				started <- d
			}
		}
		_, _ = io.Copy(io.Discard, in)
		stop(errStopped)
		// If the parent was killed, the servers are gone with it, and unlocking there takes its
		// time.
		time.Sleep(closeTime)
		os.Exit(1)
	}()

	var o order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = work(ctx, o, started, os.Stdout)
	}
	switch {
	case errors.Is(err, errStopped):
		return 1 // the parent knows, if it is still there
	case err != nil:
		fmt.Fprintf(os.Stderr, "inventory worker %d: %v\n", o.Process, err)
		return 1
	}
	return 0
}

var errStopped = errors.New("stopped by the end of stdin")

// work gets ready, sells when it is told to start, and reports to out. It ends early if ctx does.
func work(ctx context.Context, o order, started <-chan time.Duration, out io.Writer) (err error) {
	found, err := findRungs(o.Rung)
	if err != nil {
		return err
	}
	client := newRedisClient(o.Redis, o.Goroutines)
	defer client.Close()
	var commands commandCount
	client.AddHook(&commands)
	locks, err := found[0].open(client, o)
	if err != nil {
		return err
	}
	defer func() {
		limit := calmTime
		if ctx.Err() != nil {
			limit = closeTime
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		err = errors.Join(err, locks.Close(ctx))
	}()
	db, err := o.Place.open(max(1, min(o.Goroutines, (maxConns-o.arbiterConns())/o.Processes)))
	if err != nil {
		return err
	}
	defer db.Close()

	messages := json.NewEncoder(out)
	if err := messages.Encode(message{Ready: true}); err != nil {
		return err
	}
	select {
	case o.Duration = <-started:
	case <-ctx.Done():
		return context.Cause(ctx)
	}

	begin, before := time.Now(), commands.Load()
	s := seller{order: o, fenced: found[0].fenced, shared: found[0].shared, locks: locks, db: db, soldOut: make([]atomic.Bool, o.SKUs)}
	done := make(chan tally, 1)
	go func() { done <- s.sellAll(ctx) }()
	ticker := time.NewTicker(messageInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			// If the parent cannot be told, it is gone, and the end of stdin ends the sale.
			_ = messages.Encode(message{Sold: s.sold.Load(), Commands: commands.Load() - before})
		case t := <-done:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return messages.Encode(message{Result: &result{
				Tally:    t,
				Elapsed:  time.Since(begin),
				Commands: commands.Load() - before,
			}})
		}
	}
}

// A seller is the sale in one process.
type seller struct {
	order
	fenced  bool
	shared  bool // look-ups take locks for reading
	locks   locker
	db      database
	sold    atomic.Int64
	soldOut []atomic.Bool // by SKU
}

// sellAll sells with all goroutines until time or stock runs out.
func (s *seller) sellAll(ctx context.Context) tally {
	ctx, cancel := context.WithTimeout(ctx, s.Duration)
	defer cancel()
	tallies := make([]tally, s.Goroutines)
	var wg sync.WaitGroup
	for i := range tallies {
		tallies[i] = newTally(s.SKUs)
		wg.Go(func() {
			if s.Catalogue {
				s.browseMany(ctx, s.Process == 0 && i == 0, &tallies[i])
			} else {
				s.sellMany(ctx, &tallies[i])
			}
		})
	}
	wg.Wait()
	sum := newTally(s.SKUs)
	for _, t := range tallies {
		sum.add(t)
	}
	return sum
}

func (s *seller) sellMany(ctx context.Context, t *tally) {
	for ctx.Err() == nil {
		sku, ok := s.pick()
		if !ok {
			return
		}
		if err := s.sellOne(ctx, sku, t); err != nil {
			t.fail(1, err.Error())
			time.Sleep(10 * time.Millisecond) // do not spin on a fault that stays
		}
	}
}

// pick returns a random SKU that is not known to be sold out, if there is one.
func (s *seller) pick() (int, bool) {
	first := rand.IntN(s.SKUs)
	for i := range s.SKUs {
		if sku := (first + i) % s.SKUs; !s.soldOut[sku].Load() {
			return sku, true
		}
	}
	return 0, false
}

// sellOne waits for the lock, sells a unit under it, and unlocks.
func (s *seller) sellOne(ctx context.Context, sku int, t *tally) (err error) {
	begin := time.Now()
	hold, err := s.locks.Lock(ctx, skuName(sku))
	// A wait that the end of the sale cuts off counts as well, as long as it was: otherwise a lock
	// that starves a buyer would look good.
	t.Waits.Record(time.Since(begin))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("lock: %w", err)
	}
	defer func() { err = errors.Join(err, hold.Unlock()) }()
	return s.sell(hold, sku, t)
}

const (
	readUnits  = `SELECT units FROM stock WHERE sku = $1`
	claimUnits = `UPDATE stock SET fence = $1 WHERE sku = $2 AND fence < $1 RETURNING units`
	sellFenced = `UPDATE stock SET units = $1 WHERE sku = $2 AND fence = $3`
	sellPlain  = `UPDATE stock SET units = $1 WHERE sku = $2`
)

// sell reads how many units there are and writes one less. It depends on the lock that no other
// seller does so in between. The token guards against a seller that stood still until its lock was
// taken away: it goes in with the reading, and the write needs the row to have it still. A check in
// the write alone would let in a late write that comes after the next seller has read.
func (s *seller) sell(h hold, sku int, t *tally) error {
	ctx := h.Context() // ends when the lock is lost, not when the sale's time is up
	name := skuName(sku)
	read, write, args := readUnits, sellPlain, []any{name}
	if s.fenced {
		fence, err := sqlFence(h.Fence())
		if err != nil {
			return err
		}
		read, write, args = claimUnits, sellFenced, []any{fence, name}
	}
	rows, err := s.db.Query(ctx, read, args...)
	if err != nil {
		return err
	}
	if len(rows) == 0 && s.fenced {
		t.Rejected++
		return nil
	}
	units, err := theNumber(rows, name)
	if err != nil {
		return err
	}
	if units <= 0 {
		s.soldOut[sku].Store(true)
		return nil
	}
	args = []any{units - 1, name}
	if s.fenced {
		args = append(args, int64(h.Fence()))
	}
	changed, err := s.db.Exec(ctx, write, args...)
	if err != nil {
		return err
	}
	if changed != 1 {
		t.Rejected++
		return nil
	}
	t.Sold[sku]++
	s.sold.Add(1)
	return nil
}

// sqlFence converts a token, which is unsigned, to an SQL INTEGER, which is not. The upper half of
// a Holdfast token counts seconds since a fixed date, so it takes 68 years to outgrow one.
func sqlFence(fence coord.Fence) (int64, error) {
	if fence > math.MaxInt64 {
		return 0, fmt.Errorf("fencing token %d does not fit an SQL INTEGER", fence)
	}
	return int64(fence), nil
}

func skuName(sku int) string { return fmt.Sprintf("sku-%d", sku+1) }
