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

// A fixedLock grants what the test says.
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
	if tally.Sold[0] != 25 || tally.Failed != 0 || tally.Waits.count() != 26 {
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
