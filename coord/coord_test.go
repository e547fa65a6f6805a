package coord_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/coordtest"
	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/takes"
)

func TestMain(m *testing.M) {
	takes.SideBySide(4)
	leak.Main(m)
}

// These are those of every package that uses coordinators. startDefault is for tests of many
// partitions or many holds.
var start, startDefault, bubble, withFew = coordtest.Start, coordtest.StartDefault, coordtest.Bubble, coordtest.WithFew

const few = coordtest.Few

func lock(t *testing.T, c *coord.Coordinator, key string) coord.Lock {
	t.Helper()
	l, err := c.Lock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func unlock(t *testing.T, l coord.Lock) {
	t.Helper()
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
}

func TestALockExcludesGoroutinesAndProcesses(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		var inside, last atomic.Int64
		var work sync.WaitGroup
		for range 3 { // "processes"
			c := start(t, a, nil)
			for range 8 {
				work.Go(func() {
					for range 50 {
						err := c.Do(t.Context(), "sku-1", func(_ context.Context, l coord.Lock) error {
							if inside.Add(1) != 1 {
								t.Error("two holders (I1)")
							}
							if f := int64(l.Fence()); last.Swap(f) >= f {
								t.Errorf("token %d did not rise (I2)", f)
							}
							time.Sleep(time.Millisecond)
							inside.Add(-1)
							return nil
						})
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		work.Wait()
	})
}

func TestALockIsAValue(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		l := lock(t, c, "k")
		copied := l
		if l.Key() != "k" || l.Fence() == 0 || copied != l {
			t.Errorf("lock %v", l)
		}
		unlock(t, l)
		for _, stale := range []coord.Lock{l, copied, {}} {
			if err := stale.Unlock(); err != coord.ErrUnlocked {
				t.Errorf("Unlock of a stale copy: %v", err)
			}
			if err := context.Cause(stale.Context()); err != coord.ErrUnlocked {
				t.Errorf("context of a stale copy: %v", err)
			}
		}
		again := lock(t, c, "k")
		if again.Fence() <= l.Fence() {
			t.Error("the token did not rise (I2)")
		}
		if err := l.Unlock(); err != coord.ErrUnlocked {
			t.Errorf("a stale lock unlocks a fresh one: %v", err)
		}
		unlock(t, again)
	})
}

func TestInvalidKeys(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		for _, key := range []string{"", strings.Repeat("k", coord.MaxKey+1), "\x00", "\x00k"} {
			if _, err := c.Lock(t.Context(), key); !errors.Is(err, coord.ErrInvalidKey) {
				t.Errorf("Lock of %d bytes: %v", len(key), err)
			}
			if _, err := c.TryLock(t.Context(), key); !errors.Is(err, coord.ErrInvalidKey) {
				t.Errorf("TryLock of %d bytes: %v", len(key), err)
			}
		}
		unlock(t, lock(t, c, strings.Repeat("\xff", coord.MaxKey)))
	})
}

func TestTryLockDoesNotWait(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		here, there := start(t, a, nil), start(t, a, nil)
		l := lock(t, here, "k")
		for _, c := range []*coord.Coordinator{here, there} {
			if _, err := c.TryLock(t.Context(), "k"); !errors.Is(err, coord.ErrLocked) {
				t.Errorf("TryLock of a locked key: %v", err)
			}
		}
		unlock(t, l)
		time.Sleep(time.Second) // it lingers here
		for _, c := range []*coord.Coordinator{here, there} {
			l, err := c.TryLock(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			unlock(t, l)
			time.Sleep(time.Second)
		}
	})
}

func TestAWaitEndsWithItsContextAndSaysWhy(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		here, there := start(t, a, nil), start(t, a, nil)
		l := lock(t, here, "k")
		defer l.Unlock()
		for _, why := range []error{errors.New("why"), fmt.Errorf("why: %w", context.DeadlineExceeded)} {
			for _, c := range []*coord.Coordinator{here, there} {
				ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, why)
				defer cancel()
				_, err := c.Lock(ctx, "k")
				for _, want := range []error{context.DeadlineExceeded, why, coord.ErrLocked} {
					if !errors.Is(err, want) {
						t.Errorf("%v is not %v", err, want)
					}
				}
				if errors.Is(err, coord.ErrUnavailable) {
					t.Errorf("contended is not unavailable (rule 10): %v", err)
				}
				if _, err := c.Lock(ctx, "free"); !errors.Is(err, why) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("with a ctx that has ended: %v", err)
				}
			}
		}
	})
}

func TestWaitersAreServedInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		l := lock(t, c, "k")
		var order []int
		var work sync.WaitGroup
		for i := range 10 {
			work.Go(func() {
				l := lock(t, c, "k")
				order = append(order, i)
				unlock(t, l)
			})
			synctest.Wait() // i waits
		}
		unlock(t, l)
		work.Wait()
		if fmt.Sprint(order) != "[0 1 2 3 4 5 6 7 8 9]" {
			t.Error(order)
		}
	})
}

func TestOneContenderPerProcessAndKey(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		here, there := start(t, a, nil), start(t, a, nil)
		l := lock(t, there, "k")
		var work sync.WaitGroup
		for range 100 {
			work.Go(func() { unlock(t, lock(t, here, "k")) })
		}
		synctest.Wait()
		if n := here.Stats().Calls[coord.OpLock]; n != 1 {
			t.Errorf("%d requests for 100 callers", n)
		}
		unlock(t, l)
		work.Wait()
		s := here.Stats()
		if s.Calls[coord.OpLock] != 2 || s.Granted[coord.PathTurn] != 99 || s.Granted[coord.PathArbiter] != 1 {
			t.Errorf("%v %v", s.Calls, s.Granted)
		}
	})
}

// hog keeps a key's lock going round in a process, a millisecond a turn, until stop is called.
func hog(t *testing.T, c *coord.Coordinator, key string) (stop func() (turns int)) {
	ctx, cancel := context.WithCancel(t.Context())
	var turns atomic.Int64
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for {
				l, err := c.Lock(ctx, key)
				if err != nil {
					return
				}
				turns.Add(1)
				time.Sleep(time.Millisecond)
				_ = l.Unlock()
			}
		})
	}
	return func() int {
		cancel()
		work.Wait()
		return int(turns.Load())
	}
}

func TestAKeyIsHandedOverWithinAQuantum(t *testing.T) {
	for _, x := range []struct {
		limits coord.Handoff
		most   time.Duration
	}{
		{coord.Handoff{MaxHold: 20 * time.Millisecond}, 22 * time.Millisecond},
		{coord.Handoff{MaxTurns: 5, MaxHold: -1}, 7 * time.Millisecond},
		{coord.Handoff{MaxTurns: 1}, 2 * time.Millisecond},
	} {
		bubble(t, func(t *testing.T, a *fallback.Memory) {
			here, there := start(t, a, &coord.Options{Handoff: x.limits}), start(t, a, nil)
			stop := hog(t, here, "k")
			defer stop()
			time.Sleep(time.Second)
			if s := here.Stats(); s.Granted[coord.PathArbiter] != 1 {
				t.Errorf("nobody else waits, and yet the hold was given back: %v", s.Granted)
			}
			begin := time.Now()
			l := lock(t, there, "k")
			if d := time.Since(begin); d > x.most {
				t.Errorf("limits %+v: waited %v", x.limits, d)
			}
			unlock(t, l)
		})
	}
}

func TestProcessesShareAHotKeyFairly(t *testing.T) {
	takes.Seconds(t)
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		var stops []func() int
		for range 4 {
			stops = append(stops, hog(t, start(t, a, nil), "k"))
		}
		time.Sleep(10 * time.Second)
		total := 0
		var turns []int
		for _, stop := range stops {
			n := stop()
			total += n
			turns = append(turns, n)
		}
		for _, n := range turns {
			if n*4 < total*9/10 {
				t.Errorf("turns %v", turns)
			}
		}
		if total < 9000 {
			t.Errorf("%d turns of a millisecond in 10 s", total)
		}
	})
}

func TestAKeyNobodyUsesIsForgottenAndGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		for i := range 100 {
			unlock(t, lock(t, c, fmt.Sprint(i)))
		}
		if s := c.Stats(); s.Kept == 0 {
			t.Error("nothing lingers")
		}
		time.Sleep(50 * time.Millisecond)
		s := c.Stats()
		if s.Kept != 0 || s.Locked != 0 || s.Waiting != 0 || s.Calls[coord.OpUnlock] != 100 {
			t.Errorf("%+v", s)
		}
	})
}

func TestALockOutlivesItsSessionTTL(t *testing.T) {
	takes.Seconds(t)
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		here, there := start(t, a, nil), start(t, a, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		l, err := here.Lock(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		cancel() // it limits the wait only
		time.Sleep(time.Hour)
		if err := l.Context().Err(); err != nil {
			t.Errorf("after an hour: %v", context.Cause(l.Context()))
		}
		if _, err := there.TryLock(t.Context(), "k"); !errors.Is(err, coord.ErrLocked) {
			t.Errorf("after an hour somebody else has it: %v", err)
		}
		unlock(t, l)
	})
}

type contextKey struct{}

func TestALocksContextHasTheCallersValuesAndItsOwnEnd(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), contextKey{}, "v"))
		l, err := c.Lock(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		inner := l.Context()
		cancel()
		if inner.Err() != nil || inner.Value(contextKey{}) != "v" || inner != l.Context() {
			t.Error("a lock's context is bound to the wait's")
		}
		unlock(t, l)
		if context.Cause(inner) != coord.ErrUnlocked {
			t.Errorf("after Unlock: %v", context.Cause(inner))
		}
	})
}

func TestDo(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		boom := errors.New("boom")
		if err := c.Do(t.Context(), "k", func(context.Context, coord.Lock) error { return boom }); err != boom {
			t.Errorf("fn's error: %v", err)
		}
		if err := c.Do(t.Context(), "k", func(_ context.Context, l coord.Lock) error { return l.Unlock() }); err != nil {
			t.Errorf("fn unlocks: %v", err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		err := c.Do(ctx, "k", func(ctx context.Context, _ coord.Lock) error {
			cancel(boom)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if err != boom {
			t.Errorf("the caller's end: %v", err)
		}
		func() {
			defer func() {
				if r := recover(); r != boom {
					t.Errorf("recovered %v", r)
				}
			}()
			_ = c.Do(t.Context(), "k", func(context.Context, coord.Lock) error { panic(boom) })
		}()
		unlock(t, lock(t, c, "k")) // it is free
	})
}

func TestCloseWaitsForLocksInUse(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c, other := start(t, a, nil), start(t, a, nil)
		l := lock(t, c, "k")
		waiting := make(chan error)
		go func() {
			_, err := c.Lock(t.Context(), "k")
			waiting <- err
		}()
		synctest.Wait()
		go func() {
			time.Sleep(30 * time.Second)
			unlock(t, l)
		}()
		go func() {
			if err := <-waiting; !errors.Is(err, coord.ErrClosed) {
				t.Errorf("a waiter: %v", err)
			}
		}()
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if _, err := c.Lock(t.Context(), "k"); !errors.Is(err, coord.ErrClosed) {
			t.Errorf("Lock after Close: %v", err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("Close again: %v", err)
		}
		l, err := other.TryLock(t.Context(), "k")
		if err != nil {
			t.Fatalf("not given back: %v", err)
		}
		unlock(t, l)
	})
}

// Two callers close at once: the second waits for the first, and time goes on in a bubble
// meanwhile.
func TestCloseByTwo(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c, err := coord.New(context.Background(), a, withFew(nil))
		if err != nil {
			t.Fatal(err)
		}
		lock(t, c, "k")
		var work sync.WaitGroup
		for range 2 {
			work.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Close: %v", err)
				}
			})
		}
		work.Wait()
	})
}

func TestCloseTakesAwayWhatIsNotUnlockedInTime(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c, err := coord.New(context.Background(), a, withFew(nil))
		if err != nil {
			t.Fatal(err)
		}
		other := start(t, a, nil)
		l := lock(t, c, "k")
		inner := l.Context()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		for _, err := range []error{context.Cause(inner), l.Unlock()} {
			if !errors.Is(err, coord.ErrLost) || !errors.Is(err, coord.ErrClosed) {
				t.Errorf("the lock that was in use: %v", err)
			}
		}
		if l, err = other.TryLock(t.Context(), "k"); err != nil {
			t.Fatalf("not given back: %v", err)
		}
		unlock(t, l)
	})
}

// A grant whose caller has given up goes on to the next one (rule 11).
func TestNoWakeUpIsLostWhenWaitersGiveUp(t *testing.T) {
	takes.Seconds(t)
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		cs := []*coord.Coordinator{start(t, a, nil), start(t, a, nil), start(t, a, nil)}
		var work sync.WaitGroup
		var got, gaveUp atomic.Int64
		for i := range 60 {
			work.Go(func() {
				for j := range 200 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration((i*7+j*13)%40)*time.Millisecond/4)
					l, err := cs[i%3].Lock(ctx, fmt.Sprint("k", j%3))
					cancel()
					if err != nil {
						gaveUp.Add(1)
						continue
					}
					got.Add(1)
					time.Sleep(time.Duration(j%3) * time.Millisecond)
					unlock(t, l)
				}
			})
		}
		work.Wait()
		if got.Load() < 1000 || gaveUp.Load() < 1000 {
			t.Errorf("%d locks, %d gave up", got.Load(), gaveUp.Load())
		}
		for _, c := range cs {
			for j := range 3 {
				unlock(t, lock(t, c, fmt.Sprint("k", j))) // or this hangs
			}
		}
		time.Sleep(time.Second)
		for _, c := range cs {
			if s := c.Stats(); s.Locked+s.Kept+s.Waiting != 0 {
				t.Errorf("left behind: %+v", s)
			}
		}
	})
}
