package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/virtual"
)

// Sessions that ended without a word, in a store without a clock: a process that comes has not seen
// for how long they stand still.

// A small ledger takes no records of more than limit bytes.
type small struct {
	*ledger
	limit int
}

func (l small) Swap(ctx context.Context, server string, changes []fallback.Change) ([]bool, error) {
	if err := fallback.CheckSizes(changes, l.limit); err != nil {
		return nil, err
	}
	return l.ledger.Swap(ctx, server, changes)
}

func attachSmall(t *testing.T, l *ledger, limit int) fallback.Namespace {
	t.Helper()
	s := plain
	s.Grace = quiet
	n, err := fallback.NewRecords(small{l, limit}, noClock).Attach(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// tries is Open until it does not have to wait, for some times to live.
func tries(t *testing.T, n fallback.Namespace, session string, times int) (err error) {
	t.Helper()
	for range 10 * times {
		_, err = n.Open(t.Context(), session, fallback.Registration{TTL: ttl * time.Millisecond})
		if !errors.Is(err, fallback.ErrWait) {
			return err
		}
		time.Sleep(ttl * time.Millisecond / 10)
	}
	return err
}

// A process that runs removes the sessions that others leave.
func TestObserver_RenewalsSweep(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l := newLedger()
		a := attachRecords(t, l, noClock)
		seen := openSession(t, a, "a").Expiry
		for i := range 20 {
			openSession(t, attachRecords(t, l, noClock), fmt.Sprint("s", i))
		}
		var r fallback.Renewal
		for i := range 12 {
			time.Sleep(ttl * time.Millisecond / 4)
			r = renewSession(t, a, "a", seen)
			if seen = r.Expiry; i < 3 {
				want(t, "sessions before they have ended", r.Sessions, 21)
			}
		}
		want(t, "sessions", r.Sessions, 1)
	})
}

// In Grace they stay, as their renewals may be lost.
func TestObserver_RenewalsSweepNothingInGrace(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l := newLedger()
		a, b := attachRecords(t, l, noClock), attachRecords(t, l, noClock)
		seen := openSession(t, a, "a").Expiry
		openSession(t, b, "b")
		time.Sleep(ttl * time.Millisecond / 2)
		seen = renewSession(t, a, "a", seen).Expiry
		l.restore(l.snapshot())
		time.Sleep(ttl * time.Millisecond)
		r := renewSession(t, a, "a", seen)
		if r.Sessions != 2 || r.Grace == 0 || !renewSession(t, b, "b", 0).Alive {
			t.Errorf("in Grace: %+v", r)
		}
	})
}

// A full table lets a process in once that has seen for long enough which sessions have ended.
// Where they live, the process is refused then.
func TestObserver_AFullTable(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l := newLedger()
		for i := range 20 {
			openSession(t, attachRecords(t, l, noClock), fmt.Sprint("s", i))
		}
		time.Sleep(10 * ttl * time.Millisecond)
		n := attachSmall(t, l, len(l.snapshot()["ns/s"].Value))
		_, err := n.Open(t.Context(), "new", fallback.Registration{TTL: ttl * time.Millisecond})
		if !errors.Is(err, fallback.ErrWait) || !errors.Is(err, fallback.ErrRefused) {
			t.Errorf("at first: %v", err)
		}
		if err := tries(t, n, "new", 2); err != nil {
			t.Errorf("after two times to live: %v", err)
		}
	})
	virtual.Test(t, func(t *testing.T) {
		l := newLedger()
		a := attachRecords(t, l, noClock)
		openSession(t, a, "a")
		n := attachSmall(t, l, len(l.snapshot()["ns/s"].Value))
		done := make(chan error)
		go func() { done <- tries(t, n, "new", 3) }()
		for {
			select {
			case err := <-done:
				if !errors.Is(err, fallback.ErrRefused) || errors.Is(err, fallback.ErrWait) {
					t.Errorf("beside a session that lives: %v", err)
				}
				return
			case <-time.After(ttl * time.Millisecond / 3):
				renewSession(t, a, "a", 0)
			}
		}
	})
}

// A session that has ended keeps no process waiting that needs a longer Grace.
func TestObserver_ALongerGraceAfterAStop(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l := newLedger()
		attach := func(grace time.Duration) fallback.Namespace {
			s := plain
			s.Grace, s.Lease = grace, ttl*time.Millisecond
			n, err := fallback.NewRecords(l, noClock).Attach(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		openSession(t, attach(quiet), "old")
		time.Sleep(10 * ttl * time.Millisecond)
		if err := tries(t, attach(3*quiet), "new", 3); err != nil {
			t.Error(err)
		}
	})
}
