package coord_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// seated returns a read lock that was had without a mutex.
func seated(t *testing.T, c *coord.Coordinator, key string) coord.ReadLock {
	t.Helper()
	for range 10 {
		l := rlock(t, c, key)
		if coord.Seated(l) {
			return l
		}
		runlock(t, l)
	}
	t.Fatal("no reader has a seat")
	return coord.ReadLock{}
}

// A lock that was unlocked is not taken for that of the reader that has its seat now.
func TestRLock_UnlockedTwice(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		first := seated(t, c, "k")
		runlock(t, first)
		second := seated(t, c, "k")
		for range 10 { // until a row is chosen twice: it may be another one when a stack has grown
			if coord.SameSeat(first, second) {
				break
			}
			first = second
			runlock(t, first)
			second = seated(t, c, "k")
		}
		if !coord.SameSeat(first, second) {
			t.Fatal("the seat is not used again")
		}
		twice := second
		for range 2 {
			if err := first.Unlock(); !errors.Is(err, coord.ErrUnlocked) {
				t.Errorf("twice: %v", err)
			}
		}
		if cause := context.Cause(first.Context()); cause != coord.ErrUnlocked {
			t.Errorf("the context of one that was unlocked: %v", cause)
		}
		if _, err := c.TryLock(t.Context(), "k"); !errors.Is(err, coord.ErrLocked) {
			t.Errorf("beside the second reader: %v", err)
		}
		ctx := second.Context()
		if ctx.Err() != nil || second.Context() != ctx {
			t.Error("the second reader's context has ended")
		}
		if _, err := c.Lock(ctx, "k"); !errors.Is(err, coord.ErrHeld) {
			t.Errorf("with its context: %v", err)
		}
		runlock(t, second)
		if context.Cause(ctx) != coord.ErrUnlocked {
			t.Error(context.Cause(ctx))
		}
		if err := twice.Unlock(); !errors.Is(err, coord.ErrUnlocked) {
			t.Errorf("a copy: %v", err)
		}
		unlock(t, lock(t, c, "k"))
	})
}

// A copy of a lock is unlocked by one of many callers.
func TestRLock_UnlockedByMany(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		for i := range 200 {
			l := seated(t, c, "k")
			var once atomic.Int32
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					if i%2 == 0 {
						_ = l.Context()
					}
					if l.Unlock() == nil {
						once.Add(1)
					}
				})
			}
			all.Wait()
			if once.Load() != 1 {
				t.Fatalf("%d callers have unlocked it", once.Load())
			}
		}
	})
}

// ends counts the locks of each kind of trace.
type ends struct{ granted, released atomic.Int64 }

func (e *ends) trace() *coord.Trace {
	return &coord.Trace{
		Granted:  func(context.Context, coord.GrantInfo) { e.granted.Add(1) },
		Released: func(context.Context, coord.ReleaseInfo) { e.released.Add(1) },
	}
}

// Readers that take seats and writers exclude each other, which the race detector sees by data that
// they share. Each lock of the shared name is unlocked once.
func TestRLock_BesideWriters(t *testing.T) {
	takes.Seconds(t)
	for _, where := range []string{"at the arbiter", "at the owner"} {
		t.Run(where, func(t *testing.T) {
			var e ends
			o := unhurried()
			o.SessionTTL, o.Grace, o.Trace = time.Minute, 70*time.Second, e.trace() // nothing is lost if the machine stands still
			if where == "at the arbiter" {
				o.Cluster = nil
			}
			c, err := coord.New(t.Context(), fallback.NewMemory(), o)
			if err != nil {
				t.Fatal(err)
			}
			if o.Cluster != nil {
				settle(t, o.Partitions, c)
			}
			data, seats := 0, atomic.Int64{}
			var writers, readers sync.WaitGroup
			var over atomic.Bool
			for range 2 {
				writers.Go(func() {
					for range 100 {
						l := lock(t, c, "k")
						data++
						unlock(t, l)
						for before := seats.Load(); seats.Load() < before+10 && !t.Failed(); { // readers come in between
							time.Sleep(10 * time.Microsecond)
						}
					}
				})
			}
			for range 4 {
				readers.Go(func() {
					for last := 0; !over.Load(); {
						l := rlock(t, c, "k")
						if data < last {
							t.Errorf("%d after %d", data, last)
						}
						last = data
						if coord.Seated(l) {
							seats.Add(1)
						}
						runlock(t, l)
					}
				})
			}
			writers.Wait()
			over.Store(true)
			readers.Wait()
			if data != 200 {
				t.Errorf("%d writers", data)
			}
			if err := c.Close(context.Background()); err != nil {
				t.Error(err)
			}
			if g, r := e.granted.Load(), e.released.Load(); g != r || g < 200 {
				t.Errorf("%d granted, %d released", g, r)
			}
		})
	}
}

// There are more readers than seats; a writer waits for each.
func TestRLock_MoreThanSeats(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		runlock(t, seated(t, c, "k"))
		var locks []coord.ReadLock
		counts := map[bool]int{}
		for range 40 { // more than a goroutine has
			l := rlock(t, c, "k")
			locks = append(locks, l)
			counts[coord.Seated(l)]++
		}
		if counts[true] == 0 || counts[false] == 0 {
			t.Errorf("%d readers have seats, %d are counted", counts[true], counts[false])
		}
		wrote := make(chan bool)
		go func() {
			unlock(t, lock(t, c, "k"))
			close(wrote)
		}()
		for i, l := range locks {
			synctest.Wait()
			select {
			case <-wrote:
				t.Fatalf("beside %d readers", len(locks)-i)
			case <-l.Wanted():
			}
			if _, err := c.TryRLock(t.Context(), "k"); !errors.Is(err, coord.ErrLocked) {
				t.Errorf("a reader before a writer that waits: %v", err)
			}
			runlock(t, l)
		}
		<-wrote
	})
}

// A key that was read is kept for the next reader, without being locked, and given back in the end.
func TestRLock_IsKept(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		runlock(t, seated(t, c, "k"))
		granted := c.Stats().Granted[coord.PathTurn] + c.Stats().Granted[coord.PathArbiter]
		for range 1000 {
			if s := c.Stats(); s.Locked != 0 || s.Kept != 1 {
				t.Fatalf("%d locked, %d kept", s.Locked, s.Kept)
			}
			l := rlock(t, c, "k")
			if s := c.Stats(); s.Locked != 1 || s.Kept != 0 {
				t.Fatalf("%d locked, %d kept", s.Locked, s.Kept)
			}
			runlock(t, l)
			time.Sleep(time.Millisecond)
		}
		if n := c.Stats().Granted[coord.PathTurn] + c.Stats().Granted[coord.PathArbiter]; n != granted {
			t.Errorf("%d more grants", n-granted)
		}
		time.Sleep(30 * time.Millisecond)
		if s := c.Stats(); s.Locked != 0 || s.Kept != 0 {
			t.Errorf("in the end %d locked, %d kept", s.Locked, s.Kept)
		}
	})
}

// A key that is kept for readers is in no writer's way, at its owner.
func TestRLock_KeptForNoReader(t *testing.T) {
	t.Parallel()
	store := fallback.NewMemory()
	one, two := join(t, store, unhurried()), join(t, store, unhurried())
	settled(t, 61, one, two)
	for _, c := range []*coord.Coordinator{one, two} {
		key := ownKey(t, c)
		runlock(t, seated(t, c, key))
		l, err := c.TryLock(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		unlock(t, l)
	}
	key := ownKey(t, two)
	runlock(t, seated(t, one, key))
	runlock(t, seated(t, two, key))
	unlock(t, lock(t, one, key))
	unlock(t, lock(t, two, key))
}

// ownKey returns a key that the node owns.
func ownKey(t *testing.T, c *coord.Coordinator) string {
	t.Helper()
	for key := byte('a'); key <= 'z'; key++ {
		if n, ok := c.Owner(string(key)); ok && n.Self {
			return string(key)
		}
	}
	t.Fatal("it owns none of 26 keys")
	return ""
}

// Readers with seats are told that their lock is lost.
func TestRLock_LostWithASeat(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		f := &faulty{Arbiter: a}
		c := start(t, f, nil)
		x, y := seated(t, c, "k"), seated(t, c, "k")
		ctx := x.Context()
		f.set(func(string) fault { return fault{lost: true} })
		<-ctx.Done()
		for _, l := range []coord.ReadLock{x, y} {
			if err := l.Unlock(); !errors.Is(err, coord.ErrLost) {
				t.Error(err)
			}
			if err := l.Unlock(); !errors.Is(err, coord.ErrUnlocked) {
				t.Errorf("twice: %v", err)
			}
		}
		if _, err := c.TryRLock(t.Context(), "k"); err == nil {
			t.Error("a reader without a session")
		}
		f.set(nil)
		runlock(t, seated(t, c, "k"))
	})
}

// A wall clock that steps forward, as after a machine was suspended, ends a pledge.
func TestRLock_AfterTheWallClockStepped(t *testing.T) {
	t.Parallel()
	c, err := coord.New(t.Context(), fallback.NewMemory(), &coord.Options{SessionTTL: time.Second, Grace: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	l := seated(t, c, "k")
	if !coord.StepClock(c, c.Stats().Session, 3600) {
		t.Fatal("no session")
	}
	for stepped := time.Now(); time.Since(stepped) <= time.Millisecond; {
		runtime.Gosched()
	}
	if late, err := c.TryRLock(t.Context(), "k"); err == nil {
		if late.Fence() == l.Fence() {
			t.Error("a reader beside one whose lease is over")
		}
		runlock(t, late)
	}
	if err := l.Unlock(); !errors.Is(err, coord.ErrLost) {
		t.Error(err)
	}
	runlock(t, rlock(t, c, "k")) // in the next session
}

// Close waits for the readers, and for no key that is only kept.
func TestRLock_UntilClosed(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		runlock(t, seated(t, c, "kept"))
		l := seated(t, c, "k")
		closed := make(chan error)
		go func() { closed <- c.Close(context.Background()) }()
		synctest.Wait()
		for _, key := range []string{"k", "kept"} {
			if _, err := c.TryRLock(t.Context(), key); !errors.Is(err, coord.ErrClosed) {
				t.Errorf("%s: %v", key, err)
			}
		}
		select {
		case err := <-closed:
			t.Errorf("closed beside a reader: %v", err)
		default:
		}
		runlock(t, l)
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

// A key that is read all the time has been held for long by no reader; one that stays is told of.
func TestLog_LongReaders(t *testing.T) {
	takes.Seconds(t)
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		h := newRecords()
		o := named("one", h)
		o.LogCallers, o.LongWait, o.LongHold = false, time.Second, 2*time.Second
		c := start(t, a, o)
		short := func() {
			for range 4000 {
				l := rlock(t, c, "k")
				time.Sleep(time.Millisecond)
				runlock(t, l)
			}
		}
		short()
		if all := h.atLeast(slog.LevelWarn); len(all) > 0 {
			t.Errorf("%v", all)
		}
		l := rlock(t, c, "k")
		short()
		runlock(t, l)
		if all := h.about(longHold); len(all) != 1 || all[0].attrs["key"].String() != "k" || all[0].attrs["mode"].String() != "read" {
			t.Errorf("of a reader that stays for 4 s: %v", all)
		}
	})
}

// Readers that are counted are known apart as well: those that follow each other are not long, and
// one that stays beside them is.
func TestLog_LongReadersWithoutASeat(t *testing.T) {
	takes.Seconds(t)
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		h := newRecords()
		o := named("one", h)
		o.LogCallers, o.LongHold, o.Handoff.Linger = false, 2*time.Second, -1
		c := start(t, a, o)
		overlap := func() {
			var work sync.WaitGroup
			for i := range 2 {
				work.Go(func() {
					time.Sleep(time.Duration(i) * 5 * time.Millisecond)
					for begin := time.Now(); time.Since(begin) < 10*time.Second; {
						l := rlock(t, c, "k")
						time.Sleep(10 * time.Millisecond)
						next := rlock(t, c, "k")
						runlock(t, l)
						time.Sleep(10 * time.Millisecond)
						runlock(t, next)
					}
				})
			}
			work.Wait()
		}
		overlap()
		if all := h.about(longHold); len(all) > 0 {
			t.Errorf("%v", all)
		}
		l := rlock(t, c, "k")
		overlap()
		runlock(t, l)
		if all := h.about(longHold); len(all) != 1 {
			t.Errorf("of a reader that stays for 10 s: %v", all)
		}
	})
}

// A key that is read for long costs no timer, and is given back once its last reader has left.
func TestRLock_ForLongIsNotLookedAt(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		for range 2 {
			l := rlock(t, c, "k")
			time.Sleep(50 * time.Millisecond) // ten times Linger
			synctest.Wait()
			if n, s := coord.Lingering(c), c.Stats(); n != 0 || s.Locked != 1 {
				t.Errorf("with a reader: %d entries are looked at, %d keys are locked; want 0 and 1", n, s.Locked)
			}
			runlock(t, l)
			if n := coord.Lingering(c); n != 1 {
				t.Errorf("the reader has left: %d entries are looked at, want 1", n)
			}
			time.Sleep(50 * time.Millisecond)
			synctest.Wait()
			if n, s := coord.Lingering(c), c.Stats(); n != 0 || s.Locked+s.Kept != 0 {
				t.Errorf("long after: %d entries are looked at, %d keys are here; want none", n, s.Locked+s.Kept)
			}
		}
	})
}
