package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/internal/figures"
)

// With -catalogue nothing is sold. The goroutines look up the prices of articles, and change one of
// them now and then: a catalogue is read a thousand times as often as it is written. A price is two
// numbers, net and gross, which are read and written by a statement each. So a look-up must not see
// a change that is half done. A lock for each look-up does that, and lets one buyer at a time see
// an article. A read lock lets all of them.

// netStep is by how much a change raises a price.
const netStep = 100

// grossOf returns the gross price of a net price.
func grossOf(net int64) int64 { return net * 119 / 100 }

const (
	readNet    = `SELECT net FROM catalogue WHERE sku = $1`
	readGross  = `SELECT gross FROM catalogue WHERE sku = $1`
	claimNet   = `UPDATE catalogue SET fence = $1 WHERE sku = $2 AND fence < $1 RETURNING net`
	writeNet   = `UPDATE catalogue SET net = $1 WHERE sku = $2 AND fence = $3`
	writeGross = `UPDATE catalogue SET gross = $1 WHERE sku = $2 AND fence = $3`
)

// A reader is a locker that lets several callers read a key at the same time.
type reader interface {
	RLock(ctx context.Context, key string) (hold, error)
}

func (h holdfast) RLock(ctx context.Context, key string) (hold, error) {
	return h.Coordinator.RLock(ctx, key)
}

//nolint:unparam // the error is a reader's
func (unlocked) RLock(ctx context.Context, _ string) (hold, error) { return freeHold{ctx}, nil }

// browseMany looks up articles until the time is over. Only the first goroutine of all is sure to
// change a price.
func (s *seller) browseMany(ctx context.Context, first bool, t *tally) {
	n := rand.IntN(s.Reads) + 1
	if first {
		n = 0
	}
	for ; ctx.Err() == nil; n++ {
		browse := s.lookUp
		if n%s.Reads == 0 {
			browse = s.change
		}
		if err := browse(ctx, rand.IntN(s.SKUs), t); err != nil {
			t.fail(1, err.Error())
			time.Sleep(10 * time.Millisecond) // do not spin on a fault that stays
		}
	}
}

// lookUp reads a price.
func (s *seller) lookUp(ctx context.Context, sku int, t *tally) (err error) {
	lock := s.locks.Lock
	if s.shared {
		lock = s.locks.(reader).RLock
	}
	begin := time.Now()
	hold, err := lock(ctx, skuName(sku))
	t.Waits.Record(time.Since(begin))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("lock: %w", err)
	}
	defer func() { err = errors.Join(err, hold.Unlock()) }()
	ctx = hold.Context() // ends when the lock is lost, not when the time is up
	net, err := unitsOf(ctx, s.db, readNet, sku)
	if err != nil {
		return err
	}
	gross, err := unitsOf(ctx, s.db, readGross, sku)
	if err != nil {
		return err
	}
	if gross != grossOf(net) {
		t.Torn++
	}
	t.Sold[sku]++
	s.sold.Add(1)
	return nil
}

// change raises a price.
func (s *seller) change(ctx context.Context, sku int, t *tally) (err error) {
	hold, err := s.locks.Lock(ctx, skuName(sku))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("lock: %w", err)
	}
	defer func() { err = errors.Join(err, hold.Unlock()) }()
	ctx = hold.Context()
	name := skuName(sku)
	fence, err := sqlFence(hold.Fence())
	if err != nil {
		return err
	}
	if !s.fenced {
		fence = time.Now().UnixNano() // it rises, and says nothing of the process that has the lock
	}
	rows, err := s.db.Query(ctx, claimNet, fence, name)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		t.Rejected++
		return nil
	}
	net, err := theNumber(rows, name)
	if err != nil {
		return err
	}
	net += netStep
	if _, err := s.db.Exec(ctx, writeNet, net, name, fence); err != nil {
		return err
	}
	changed, err := s.db.Exec(ctx, writeGross, grossOf(net), name, fence)
	if err != nil {
		return err
	}
	if changed != 1 {
		t.Rejected++
		return nil
	}
	t.Changed++
	return nil
}

// fillCatalogue gives each article a price.
func (s *sale) fillCatalogue(ctx context.Context) error {
	for _, text := range []string{
		`CREATE TABLE IF NOT EXISTS catalogue (sku TEXT PRIMARY KEY, net BIGINT NOT NULL, gross BIGINT NOT NULL, fence BIGINT NOT NULL)`,
		`DELETE FROM catalogue`,
	} {
		if _, err := s.db.Exec(ctx, text); err != nil {
			return err
		}
	}
	for i := range s.skus {
		if _, err := s.db.Exec(ctx, `INSERT INTO catalogue (sku, net, gross, fence) VALUES ($1, $2, $3, 0)`, skuName(i), netStep, grossOf(netStep)); err != nil {
			return err
		}
	}
	return nil
}

// auditCatalogue returns how many changes of prices were lost, or made twice.
func (s *sale) auditCatalogue(ctx context.Context, changed int64) (wrong int64, err error) {
	for i := range s.skus {
		net, err := unitsOf(ctx, s.db, readNet, i)
		if err != nil {
			return 0, err
		}
		changed -= net/netStep - 1
	}
	return max(changed, -changed), nil
}

// writeLookUps is writeTable for a catalogue.
func writeLookUps(w io.Writer, outcomes []outcome) {
	table := [][]string{{
		"lock", "look-ups", "changes", "half seen", "lost", "look-ups/s", "ratio", "wait p50", "p99", "max", "Redis/look-up",
	}}
	for _, o := range outcomes {
		table = append(table, []string{
			o.rung.title,
			figures.Thousands(o.tally.sold()),
			figures.Thousands(o.tally.Changed),
			figures.Thousands(o.tally.Torn),
			figures.Thousands(o.oversold),
			figures.Thousands(int64(o.rate())),
			fmt.Sprintf("%.2f", ratio(o.rate(), outcomes[0].rate())),
			figures.Duration(o.tally.Waits.Quantile(0.5)),
			figures.Duration(o.tally.Waits.Quantile(0.99)),
			figures.Duration(o.tally.Waits.Longest),
			fmt.Sprintf("%.2f", ratio(float64(o.commands), float64(o.tally.sold()))),
		})
	}
	figures.Align(w, table)
	fmt.Fprint(w, `
look-ups       by all processes together; changes: of prices
half seen      look-ups that found a net price of one change and a gross price of another (must be 0)
lost           changes that are not in the catalogue (must be 0)
ratio          of the look-ups per second to those of the first line
wait           for the lock, per look-up
Redis/look-up  commands that the lock sent to Redis, per look-up; a script is one command
`)
}

// verdictOnCatalogue is nil if all look-ups and changes were as they must be.
func verdictOnCatalogue(outcomes []outcome) error {
	var errs []error
	for _, o := range outcomes {
		wrong := func(n int64, format string, args ...any) {
			if n != 0 {
				errs = append(errs, fmt.Errorf("%s: %d %s", o.rung.title, n, fmt.Sprintf(format, args...)))
			}
		}
		wrong(o.tally.Torn, "look-ups saw a change that was half done")
		wrong(o.oversold, "changes were lost")
		wrong(o.tally.Rejected, "fencing tokens were not above the one before")
		wrong(o.tally.Failed, "calls failed, one with: %s", o.tally.Failure)
		if o.tally.sold() == 0 {
			errs = append(errs, fmt.Errorf("%s: nothing was looked up", o.rung.title))
		}
	}
	return errors.Join(errs...)
}
