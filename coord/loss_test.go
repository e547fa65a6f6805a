package coord_test

import (
	"context"
	"errors"
	"fmt"
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
		// The first renewal is sent after 2.5 s and answered after 8.4 s: in time. It is good until 2.5 s + 9 s. The second
		// is sent at once, executed at once, and answered after 14.3 s: too late.
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
	ns, err := a.Attach(t.Context(), fallback.Settings{Namespace: "holdfast", Partitions: 1021, Grace: 12 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for p := range uint32(1021) {
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

func TestAnOrphanedRowIsRemovedWhenSomebodyAsks(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		here, there := start(t, net, nil), start(t, a, nil)
		// The request is executed long after its caller gave up, and after it was withdrawn.
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
		time.Sleep(6 * time.Second)
		if _, err := there.TryLock(t.Context(), "k"); !errors.Is(err, coord.ErrLocked) {
			t.Fatalf("no orphan was made: %v", err)
		}
		time.Sleep(time.Second)
		l, err := there.TryLock(t.Context(), "k")
		if err != nil {
			t.Fatalf("the orphan is still there (rule 13): %v", err)
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

func TestWaitersOutliveAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		c := start(t, net, nil)
		net.cut()
		var work sync.WaitGroup
		for range 5 {
			work.Go(func() { unlock(t, lock(t, c, "k")) })
		}
		if _, err := c.TryLock(t.Context(), "other"); !errors.Is(err, coord.ErrUnavailable) {
			t.Errorf("TryLock: %v", err)
		}
		time.Sleep(time.Minute) // the session is lost, too
		if _, err := c.TryLock(t.Context(), "other"); !errors.Is(err, coord.ErrUnavailable) {
			t.Errorf("TryLock without a session: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Lock(ctx, "k"); !errors.Is(err, coord.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock: %v", err)
		}
		net.mend()
		work.Wait()
	})
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		net.cut()
		if _, err := coord.New(context.Background(), net, nil); !errors.Is(err, coord.ErrUnavailable) || !errors.Is(err, errCut) {
			t.Errorf("unreachable: %v", err)
		}
		if _, err := coord.New(context.Background(), nil, nil); err == nil {
			t.Error("no arbiter: no error")
		}
		c := start(t, net, &coord.Options{StartUnavailable: true})
		if _, err := c.TryLock(t.Context(), "k"); !errors.Is(err, coord.ErrUnavailable) {
			t.Errorf("started unavailable: %v", err)
		}
		net.mend()
		unlock(t, lock(t, c, "k"))
		if _, err := coord.New(context.Background(), a, &coord.Options{Partitions: 7}); !errors.Is(err, fallback.ErrMismatch) {
			t.Errorf("other settings: %v", err)
		}
	})
}

func TestADeadHolderIsFoundOutByThoseWhoNeverWaitForLong(t *testing.T) {
	for name, ask := range map[string]func(ctx context.Context, c *coord.Coordinator) (coord.Lock, error){
		"TryLock": func(ctx context.Context, c *coord.Coordinator) (coord.Lock, error) { return c.TryLock(ctx, "k") },
		"Lock":    func(ctx context.Context, c *coord.Coordinator) (coord.Lock, error) { return c.Lock(ctx, "k") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				net := &faulty{Arbiter: a}
				crashed, other := start(t, net, nil), start(t, a, nil)
				defer lock(t, crashed, "k").Unlock()
				net.cut()
				defer net.mend()
				begin := time.Now()
				for time.Since(begin) < 8*time.Second {
					time.Sleep(500 * time.Millisecond)
					ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
					_, err := ask(ctx, other)
					cancel()
					if err == nil {
						t.Fatal("evicted a session that is not dead (rule 2)")
					}
				}
				time.Sleep(10500*time.Millisecond - time.Since(begin))
				l, err := ask(t.Context(), other)
				if errors.Is(err, coord.ErrLocked) { // TryLock does not wait for the arbiter's word, but has it asked for
					synctest.Wait()
					l, err = ask(t.Context(), other)
				}
				if err != nil {
					t.Fatalf("T + 0.5 s after the crash: %v; asked %d times", err, other.Stats().Calls[coord.OpDead])
				}
				unlock(t, l)
			})
		})
	}
}

func TestDeadWaitersHoldNobodyUp(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		holder := start(t, net, nil)
		defer lock(t, holder, "k").Unlock()
		for range 20 {
			w := start(t, net, nil)
			go func() {
				if l, err := w.Lock(t.Context(), "k"); err == nil {
					_ = l.Unlock()
				}
			}()
			synctest.Wait() // it is in the queue
		}
		other := start(t, a, nil)
		net.cut()
		defer net.mend()
		begin := time.Now()
		unlock(t, lock(t, other, "k"))
		if d := time.Since(begin); d > 10500*time.Millisecond {
			t.Errorf("free after %v: more than T + 0.5 s", d)
		}
	})
}

func TestASweepThatFailsIsTriedAgainWithPauses(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		c := start(t, net, nil)
		net.cut("verify")
		a.Restore(nil)
		time.Sleep(8 * time.Second)
		if n := c.Stats().Failed[coord.OpVerify]; n > 1021*20 {
			t.Errorf("%d reads in 8 s", n)
		}
		net.mend()
	})
}

func TestAnArbiterThatDoesNotAnswerIsNotALockedKey(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		c := start(t, net, nil)
		net.set(func(string) fault { return fault{lost: true} })
		defer net.mend()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if _, err := c.Lock(ctx, "k"); errors.Is(err, coord.ErrLocked) || !errors.Is(err, coord.ErrUnavailable) {
			t.Errorf("Lock: %v", err)
		}
		waiting, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		go func() { _, _ = c.Lock(waiting, "j") }()
		synctest.Wait()
		if _, err := c.TryLock(t.Context(), "j"); !errors.Is(err, coord.ErrLocked) {
			t.Errorf("TryLock while another caller's first request is under way: %v", err)
		}
		time.Sleep(2 * time.Second) // now the call has timed out
		if _, err := c.TryLock(t.Context(), "j"); errors.Is(err, coord.ErrLocked) || !errors.Is(err, coord.ErrUnavailable) {
			t.Errorf("TryLock behind a waiter: %v", err)
		}
	})
}

func TestContextsEndBeforeAnybodyIsToldOfTheLoss(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		var held []context.Context
		c := start(t, net, &coord.Options{Trace: &coord.Trace{Lost: func(coord.LossError) {
			for _, ctx := range held {
				if ctx.Err() == nil {
					t.Error("a lock of the dead session is still in force")
				}
			}
			time.Sleep(time.Second) // a function that is too slow
		}}})
		for i := range 100 {
			held = append(held, lock(t, c, fmt.Sprint(i)).Context())
		}
		net.cut()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		for i, ctx := range held {
			if !errors.Is(context.Cause(ctx), coord.ErrLost) {
				t.Fatalf("lock %d after T - M: %v", i, context.Cause(ctx))
			}
		}
		net.mend()
		time.Sleep(2 * time.Minute)
	})
}

func TestAPanicInTraceLeavesTheKeyFree(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		first := true
		c := start(t, a, &coord.Options{Trace: &coord.Trace{Granted: func(coord.GrantInfo) {
			if first {
				first = false
				panic("boom")
			}
		}}})
		func() {
			defer func() {
				if recover() != "boom" {
					t.Error("the panic did not pass through")
				}
			}()
			_, _ = c.Lock(t.Context(), "k")
		}()
		unlock(t, lock(t, c, "k"))
	})
}

func TestARequestThatIsExecutedLateLeavesNoRowBehind(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		here, there := start(t, net, nil), start(t, a, nil)
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
		time.Sleep(14 * time.Second) // no caller asks for the key
		l, err := there.TryLock(t.Context(), "k")
		if err != nil {
			t.Fatalf("the row is still there: %v", err)
		}
		unlock(t, l)

		// A request whose answer was lost, and which became a hold all the same, is not given back for that.
		first := true
		net.set(func(op string) fault {
			if op != "lock" || !first {
				return fault{}
			}
			first = false
			return fault{unheard: true}
		})
		l = lock(t, here, "k")
		time.Sleep(time.Minute)
		if l.Context().Err() != nil {
			t.Errorf("lost: %v", context.Cause(l.Context()))
		}
		unlock(t, l)
	})
}
