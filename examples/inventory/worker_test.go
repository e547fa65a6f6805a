package main

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// A fixedHold is a hold with a token of the test's choice.
type fixedHold struct {
	ctx      context.Context
	fence    coord.Fence
	unlocked *int
}

func (h fixedHold) Fence() coord.Fence       { return h.fence }
func (h fixedHold) Context() context.Context { return h.ctx }
func (h fixedHold) Unlock() error {
	*h.unlocked++
	return nil
}

// A fixedLock grants the hold and the error of the test.
type fixedLock struct {
	hold   hold
	err    error
	called func()
}

func (l *fixedLock) Lock(context.Context, string) (hold, error) {
	if l.called != nil {
		l.called()
	}
	return l.hold, l.err
}
func (l *fixedLock) Close(context.Context) error { return nil }

func newTestSeller(t *testing.T, stock int64, fenced bool) (*seller, *fixedLock, *sale) {
	t.Helper()
	_, db := openStore(t)
	s := &sale{config: config{skus: 1, stock: stock}, db: db}
	if err := s.fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	locks := &fixedLock{}
	return &seller{
		order:   order{SKUs: 1, Goroutines: 1, Duration: time.Minute}, // unless all is sold before
		fenced:  fenced,
		locks:   locks,
		db:      db,
		soldOut: make([]atomic.Bool, 1),
	}, locks, s
}

func TestFenceTurnsTheLateOneDown(t *testing.T) {
	s, locks, shop := newTestSeller(t, 10, true)
	tally := newTally(1)
	unlocked := 0
	tokens := []coord.Fence{5, 6, 6, 4, 1 << 40, 7, 0, 1<<40 + 1}
	for _, fence := range tokens {
		locks.hold = fixedHold{t.Context(), fence, &unlocked}
		if err := s.sellOne(t.Context(), 0, &tally); err != nil {
			t.Fatal(err)
		}
	}
	if tally.Sold[0] != 4 || tally.Rejected != 4 {
		t.Errorf("sold %d, rejected %d", tally.Sold[0], tally.Rejected)
	}
	if unlocked != len(tokens) {
		t.Errorf("unlocked %d times", unlocked)
	}
	if oversold, err := shop.audit(t.Context(), tally.Sold); oversold != 0 || err != nil {
		t.Errorf("oversold %d, %v", oversold, err)
	}
}

// stopping is a database that stops before an update of the units.
type stopping struct {
	database
	stopped, goOn chan struct{}
}

func (d stopping) Exec(ctx context.Context, text string, args ...any) (int64, error) {
	close(d.stopped)
	<-d.goOn
	return d.database.Exec(ctx, text, args...)
}

// The write of a seller that stood still comes when the next one has read, and has not written.
func TestLateWriteAfterTheNextHasRead(t *testing.T) {
	s, _, shop := newTestSeller(t, 10, true)
	var sellers [2]seller
	var gates [2]stopping
	var tallies [2]tally
	errs := make(chan error, 2)
	for i := range sellers {
		gates[i] = stopping{s.db, make(chan struct{}), make(chan struct{})}
		sellers[i] = seller{order: s.order, fenced: true, db: gates[i], soldOut: make([]atomic.Bool, 1)}
		tallies[i] = newTally(1)
		go func() { errs <- sellers[i].sell(fixedHold{t.Context(), coord.Fence(i + 1), new(int)}, 0, &tallies[i]) }()
		<-gates[i].stopped
	}
	for i := range sellers { // the late one first
		close(gates[i].goOn)
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if tallies[0].Rejected != 1 || tallies[1].Sold[0] != 1 {
		t.Errorf("the late one: %+v; the next one: %+v", tallies[0], tallies[1])
	}
	sold := tallies[0].Sold[0] + tallies[1].Sold[0]
	if oversold, err := shop.audit(t.Context(), []int64{sold}); oversold != 0 || err != nil {
		t.Errorf("oversold %d, %v", oversold, err)
	}
}

func TestFenceTooLargeForSQL(t *testing.T) {
	s, locks, _ := newTestSeller(t, 10, true)
	tally := newTally(1)
	unlocked := 0
	locks.hold = fixedHold{t.Context(), math.MaxInt64 + 1, &unlocked}
	if err := s.sellOne(t.Context(), 0, &tally); err == nil || tally.Sold[0] != 0 || unlocked != 1 {
		t.Errorf("%v, sold %d, unlocked %d times", err, tally.Sold[0], unlocked)
	}
	if n, err := sqlFence(math.MaxInt64); n != math.MaxInt64 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func TestNoSaleAfterTheLockIsLost(t *testing.T) {
	s, locks, shop := newTestSeller(t, 10, false)
	tally := newTally(1)
	unlocked := 0
	lost := errors.New("lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(lost)
	locks.hold = fixedHold{ctx, 1, &unlocked}
	if err := s.sellOne(t.Context(), 0, &tally); !errors.Is(err, lost) || unlocked != 1 {
		t.Errorf("%v, unlocked %d times", err, unlocked)
	}
	if oversold, err := shop.audit(t.Context(), []int64{0}); oversold != 0 || err != nil {
		t.Errorf("oversold %d, %v", oversold, err)
	}
}

func TestSellingOut(t *testing.T) {
	s, locks, shop := newTestSeller(t, 25, false)
	unlocked := 0
	locks.hold = fixedHold{t.Context(), 0, &unlocked}
	tally := s.sellAll(t.Context())
	if tally.Sold[0] != 25 || tally.Failed != 0 || tally.Waits.Count() != 26 {
		t.Errorf("%+v", tally)
	}
	if oversold, err := shop.audit(t.Context(), tally.Sold); oversold != 0 || err != nil {
		t.Errorf("oversold %d, %v", oversold, err)
	}
}

func TestLockErrorIsCounted(t *testing.T) {
	s, locks, _ := newTestSeller(t, 10, false)
	locks.err = errors.New("no lock today")
	ctx, end := context.WithCancel(t.Context())
	defer end()
	calls := 0
	locks.called = func() {
		if calls++; calls == 3 { // its error is that of the end
			end()
		}
	}
	tally := s.sellAll(ctx)
	if tally.Failed != 2 || tally.Failure != "lock: no lock today" || tally.sold() != 0 {
		t.Errorf("%+v", tally)
	}
}

func TestPickLeavesOutWhatIsSoldOut(t *testing.T) {
	s := &seller{order: order{SKUs: 3}, soldOut: make([]atomic.Bool, 3)}
	seen := make(map[int]bool)
	for len(seen) < 3 {
		sku, ok := s.pick()
		if !ok {
			t.Fatal("nothing to sell")
		}
		seen[sku] = true
	}
	s.soldOut[0].Store(true)
	s.soldOut[2].Store(true)
	for range 100 {
		if sku, ok := s.pick(); sku != 1 || !ok {
			t.Fatalf("%d, %v", sku, ok)
		}
	}
	s.soldOut[1].Store(true)
	if sku, ok := s.pick(); ok {
		t.Errorf("picked %d", sku)
	}
}

func TestAudit(t *testing.T) {
	_, _, shop := newTestSeller(t, 10, false)
	for sold, want := range map[int64]int64{0: 0, 3: 3, -2: 2} {
		if oversold, err := shop.audit(t.Context(), []int64{sold}); oversold != want || err != nil {
			t.Errorf("%d sold: %d oversold, %v", sold, oversold, err)
		}
	}
}
