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

// The requests of dead processes are out of the way as soon as they are known to be dead. Neither
// their number nor the name under which they wait matters: no later caller waits for a promise to
// each of them to lapse.
func TestDeadWaitersHoldNobodyUp(t *testing.T) {
	type ask = func(ctx context.Context, c *coord.Coordinator) (free func() error, err error)
	exclusive := func(ctx context.Context, c *coord.Coordinator) (func() error, error) {
		l, err := c.Lock(ctx, "k")
		return l.Unlock, err
	}
	reading := func(ctx context.Context, c *coord.Coordinator) (func() error, error) {
		l, err := c.RLock(ctx, "k")
		return l.Unlock, err
	}
	permits := func(n int) ask {
		return func(ctx context.Context, c *coord.Coordinator) (func() error, error) {
			x, err := c.Semaphore("k", 10).Acquire(ctx, n)
			return x.Release, err
		}
	}
	permit, all := permits(1), permits(10)
	for name, x := range map[string]struct {
		hold, wait, ask ask
		processes, each int
	}{
		"writers":                     {exclusive, exclusive, exclusive, 20, 1},
		"readers":                     {exclusive, reading, reading, 20, 1},
		"readers, before a writer":    {exclusive, reading, exclusive, 20, 1},
		"permits of one process":      {all, permit, permit, 1, 40},
		"permits of many processes":   {all, permit, all, 10, 4},
		"those who want more permits": {permit, all, all, 1, 40},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				net := &faulty{Arbiter: a}
				held, err := x.hold(t.Context(), start(t, net, nil))
				if err != nil {
					t.Fatal(err)
				}
				defer held()
				for range x.processes {
					w := start(t, net, nil)
					for range x.each {
						go func() {
							if free, err := x.wait(t.Context(), w); err == nil {
								_ = free()
							}
						}()
						synctest.Wait() // it is in the queue
					}
				}
				other := start(t, a, nil)
				net.cut()
				defer net.mend()
				begin := time.Now()
				free, err := x.ask(t.Context(), other)
				if err != nil {
					t.Fatal(err)
				}
				_ = free()
				if d := time.Since(begin); d > 10500*time.Millisecond {
					t.Errorf("free after %v: more than T + 0.5 s", d)
				}
			})
		})
	}
}

func TestASweepThatFailsIsTriedAgainWithPauses(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		c := startDefault(t, net, nil)
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
		c := startDefault(t, net, &coord.Options{Trace: &coord.Trace{Lost: func(coord.LossError) {
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
		c := start(t, a, &coord.Options{Trace: &coord.Trace{Granted: func(context.Context, coord.GrantInfo) {
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
		net, here, there := executedLate(t, a)
		time.Sleep(14 * time.Second) // no caller asks for the key
		l, err := there.TryLock(t.Context(), "k")
		if err != nil {
			t.Fatalf("the row is still there: %v", err)
		}
		unlock(t, l)

		// A request whose answer was lost, and which became a hold all the same, is not given back
		// for that.
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
