package coord_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// awaitLoss returns when and why the lock was lost.
func awaitLoss(t *testing.T, l coord.Lock) (after time.Duration, cause coord.LossCause) {
	t.Helper()
	begin := time.Now()
	select {
	case <-l.Context().Done():
	case <-time.After(time.Minute):
		t.Fatal("the lock is not lost")
	}
	after = time.Since(begin)
	err := context.Cause(l.Context())
	loss, ok := errors.AsType[*coord.LossError](err)
	if !ok || !errors.Is(err, coord.ErrLost) {
		t.Fatalf("cause: %v", err)
	}
	if err := l.Unlock(); !errors.Is(err, coord.ErrLost) {
		t.Errorf("Unlock of a lost lock: %v", err)
	}
	if err := l.Unlock(); !errors.Is(err, coord.ErrUnlocked) {
		t.Errorf("Unlock again: %v", err)
	}
	return after, loss.Cause
}

func TestALockIsLostBeforeAnybodyElseGetsIt(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		cutOff, other := start(t, net, nil), start(t, a, nil)
		l := lock(t, cutOff, "k")
		net.cut()
		var work sync.WaitGroup
		begin := time.Now()
		var lost, got time.Duration
		work.Go(func() {
			var cause coord.LossCause
			if lost, cause = awaitLoss(t, l); cause != coord.SessionExpired {
				t.Errorf("cause %v", cause)
			}
		})
		work.Go(func() {
			m := lock(t, other, "k")
			got = time.Since(begin)
			if m.Fence() <= l.Fence() {
				t.Error("the token did not rise (I2)")
			}
			unlock(t, m)
		})
		work.Wait()
		if lost > 9*time.Second || got < lost || got > 10500*time.Millisecond {
			t.Errorf("lost after %v (T - M is 9 s), granted to another after %v (T + 0.5 s)", lost, got)
		}
		net.mend()
		unlock(t, lock(t, cutOff, "k")) // with a new session
		if s := cutOff.Stats(); s.Sessions != 2 || s.Lost[coord.SessionExpired] != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestAnOutageShorterThanTheLeaseLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		c := start(t, net, nil)
		l := lock(t, c, "k")
		for range 10 {
			time.Sleep(3 * time.Second)
			net.cut()
			time.Sleep(5 * time.Second)
			net.mend()
		}
		if l.Context().Err() != nil {
			t.Errorf("lost: %v", context.Cause(l.Context()))
		}
		unlock(t, l)
	})
}

func TestTurnsGoOnWhileTheArbiterIsAway(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		c := start(t, net, nil)
		stop := hog(t, c, "k")
		time.Sleep(time.Second)
		net.cut()
		before := c.Stats().Granted[coord.PathTurn]
		time.Sleep(5 * time.Second)
		if n := c.Stats().Granted[coord.PathTurn] - before; n < 4900 {
			t.Errorf("%d turns of a millisecond in 5 s without an arbiter", n)
		}
		net.mend()
		stop()
	})
}

func TestAHoldThatCannotBeVerifiedIsLostAlone(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		c := start(t, net, nil)
		l := lock(t, c, "k")
		net.cut("verify")
		if after, cause := awaitLoss(t, l); cause != coord.LeaseExpired || after > 9*time.Second {
			t.Errorf("after %v: %v", after, cause)
		}
		unlock(t, lock(t, c, "k")) // the session lives, and the row was released
		if s := c.Stats(); s.Sessions != 1 {
			t.Errorf("%d sessions", s.Sessions)
		}
	})
}

// Rule 3: local death is for ever.
func TestTheOldDeadlineDecidesWhetherALateAnswerCounts(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		c := start(t, net, &coord.Options{CallTimeout: 6 * time.Second})
		l := lock(t, c, "k")
		net.set(func(op string) fault {
			if op == "renew" || op == "verify" {
				return fault{answer: 5900 * time.Millisecond}
			}
			return fault{}
		})
		// The first renewal is sent after 2.5 s and answered after 8.4 s: in time. It is good until
		// 2.5 s + 9 s. The second is sent at once, executed at once, and answered after 14.3 s: too
		// late.
		if after, cause := awaitLoss(t, l); after != 11500*time.Millisecond || cause == coord.Superseded {
			t.Errorf("after %v: %v", after, cause)
		}
		net.mend()
		time.Sleep(10 * time.Second) // for the answers under way
	})
}

func TestAHoldThatTheArbiterDoesNotKnowIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		l := lock(t, c, "k")
		removeRows(t, a)
		if after, cause := awaitLoss(t, l); cause != coord.Superseded || after > 2500*time.Millisecond {
			t.Errorf("after %v: %v", after, cause)
		}
	})
}

// removeRows removes every row, as an operator might by hand.
func removeRows(t *testing.T, a fallback.Arbiter) {
	t.Helper()
	ns, err := a.Attach(t.Context(), fallback.Settings{Namespace: "holdfast", Partitions: few, Grace: 12 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for p := range uint32(few) {
		s, err := ns.Acquire(t.Context(), p, "hand", fallback.Expect{Epoch: must(ns.Load(t.Context(), p)).Epoch})
		if err != nil || s.Verdict != fallback.Granted {
			t.Fatal(s, err)
		}
		if d, err := ns.Demote(t.Context(), p, "hand", s.Record.Epoch, nil); err != nil || d.Verdict != fallback.Granted {
			t.Fatal(d, err)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestHoldsAreReclaimedAfterAFailover(t *testing.T) {
	for name, keep := range map[string]bool{"with older data": true, "without data": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				here, there := start(t, a, nil), start(t, a, nil)
				before := lock(t, here, "before")
				var replica *fallback.Snapshot
				if keep {
					replica = a.Snapshot()
				}
				after := lock(t, here, "after")
				free := lock(t, there, "free")
				unlock(t, free)
				time.Sleep(time.Second)

				a.Restore(replica)
				failed := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				if _, err := there.Lock(ctx, "free"); !errors.Is(err, coord.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a free key in Grace (I7): %v", err)
				}
				if _, err := there.TryLock(t.Context(), "free"); !errors.Is(err, coord.ErrUnavailable) {
					t.Errorf("TryLock in Grace (I7): %v", err)
				}
				l := lock(t, there, "free")
				if d := time.Since(failed); d > 14*time.Second {
					t.Errorf("granted %v after the failover: more than Q + 2 s", d)
				}
				if l.Fence() <= free.Fence() {
					t.Errorf("token %d after %d (I2)", l.Fence(), free.Fence())
				}
				unlock(t, l)
				for _, l := range []coord.Lock{before, after} {
					if l.Context().Err() != nil {
						t.Errorf("%s was lost: %v", l.Key(), context.Cause(l.Context()))
					}
					if _, err := there.TryLock(t.Context(), l.Key()); !errors.Is(err, coord.ErrLocked) {
						t.Errorf("%s was not reclaimed (I1): %v", l.Key(), err)
					}
					unlock(t, l)
					again := lock(t, there, l.Key())
					if again.Fence() <= l.Fence() {
						t.Errorf("%s: token %d after %d (I2)", l.Key(), again.Fence(), l.Fence())
					}
					unlock(t, again)
				}
				if s := here.Stats(); s.Sessions != 1 {
					t.Errorf("%d sessions", s.Sessions)
				}
			})
		})
	}
}

func TestACrashedProcessBlocksNobodyForLongerThanTPlusHalfASecond(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		crashed, other := start(t, net, nil), start(t, a, nil)
		keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		for _, k := range keys {
			defer lock(t, crashed, k).Unlock()
		}
		time.Sleep(2400 * time.Millisecond) // just before a renewal
		net.cut()
		begin := time.Now()
		var work sync.WaitGroup
		for _, k := range keys {
			work.Go(func() { unlock(t, lock(t, other, k)) })
		}
		work.Wait()
		if d := time.Since(begin); d > 10500*time.Millisecond {
			t.Errorf("free after %v", d)
		}
		if n := other.Stats().Calls[coord.OpDead]; n > 8 {
			t.Errorf("%d questions whether one session is dead", n)
		}
		net.mend()
	})
}

func TestMessagesThatGetLostOnlyDelay(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		net.cut("message")
		here, there := start(t, net, nil), start(t, net, nil)
		l := lock(t, here, "k")
		var work sync.WaitGroup
		var waited time.Duration
		work.Go(func() {
			begin := time.Now()
			unlock(t, lock(t, there, "k"))
			waited = time.Since(begin)
		})
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		unlock(t, l)
		work.Wait()
		if waited > 4*time.Second {
			t.Errorf("waited %v for a key that was free: a timer has to look (rule 15)", waited)
		}
	})
}

// executedLate makes a request of here's that is executed long after its caller gave up, and after
// it was withdrawn.
func executedLate(t *testing.T, a *fallback.Memory) (net *faulty, here, there *coord.Coordinator) {
	t.Helper()
	net = &faulty{Arbiter: a}
	here, there = start(t, net, nil), start(t, a, nil)
	net.set(func(op string) fault {
		if op == "lock" {
			return fault{request: 5 * time.Second}
		}
		return fault{}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := here.Lock(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	return net, here, there
}

// Rule 13: a call that timed out was executed later, and has made a row without a holder.
func TestARowWithoutAHolderIsRemovedWhenItIsAskedFor(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		_, _, there := executedLate(t, a)
		time.Sleep(6 * time.Second)
		if _, err := there.TryLock(t.Context(), "k"); !errors.Is(err, coord.ErrLocked) {
			t.Fatalf("no row was made: %v", err)
		}
		time.Sleep(time.Second)
		l, err := there.TryLock(t.Context(), "k")
		if err != nil {
			t.Fatalf("the row is still there: %v", err)
		}
		unlock(t, l)
	})
}

func TestALockThatTheServerRefusesFailsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		c := start(t, net, nil)
		net.set(func(op string) fault {
			if op == "lock" {
				return fault{err: fallback.ErrRefused}
			}
			return fault{}
		})
		begin := time.Now()
		_, err := c.Lock(t.Context(), "k")
		if !errors.Is(err, coord.ErrUnavailable) || !errors.Is(err, fallback.ErrRefused) || time.Since(begin) > 0 {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	})
}
