package coord_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// A rolling deployment may change SessionTTL. The namespace's Grace goes for all, so that it
// outlasts the leases of both.
func TestNew_SessionTTLChangesWhileOthersRun(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		cut := &faulty{Arbiter: a}
		old := start(t, cut, nil)
		young := start(t, a, &coord.Options{SessionTTL: 4 * time.Second})
		l := lock(t, old, "k")
		held := l.Context()
		if _, err := young.TryLock(t.Context(), "k"); !errors.Is(err, coord.ErrLocked) {
			t.Errorf("%v", err)
		}
		cut.set(func(string) fault { return fault{lost: true} })
		time.Sleep(time.Millisecond)
		a.Restore(nil) // a lock that the new server does not know is in force while its holder does not know of the server
		failover := time.Now()
		if held.Err() != nil {
			t.Fatal(context.Cause(held))
		}
		got, err := young.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if held.Err() == nil {
			t.Error("two holders (I1)")
		}
		if waited := time.Since(failover); waited < 12*time.Second || waited > 13*time.Second {
			t.Errorf("it was granted after %v, and the namespace's Grace is 12 s", waited)
		}
		unlock(t, got)
		cut.set(nil)
		if err := l.Unlock(); !errors.Is(err, coord.ErrLost) {
			t.Error(err)
		}
	})
}

// A rolling deployment to a longer SessionTTL, and back: the processes that run take the longer
// Grace over before the first lock is granted that needs it, and go back when none needs it.
func TestNew_ALongerSessionTTLAndBack(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		long := &coord.Options{SessionTTL: 25 * time.Second}
		old := start(t, a, nil)
		unlock(t, lock(t, old, "k"))
		cut := &faulty{Arbiter: a}
		begin := time.Now()
		young := start(t, cut, long)
		if waited := time.Since(begin); waited < 2*time.Second || waited > 8*time.Second {
			t.Errorf("the first process with a longer SessionTTL started after %v, and others renew every 2.5 s", waited)
		}
		begin = time.Now()
		start(t, a, long)
		if waited := time.Since(begin); waited > time.Second {
			t.Errorf("the second one started after %v", waited)
		}
		l := lock(t, young, "k")
		held := l.Context()
		cut.set(func(string) fault { return fault{lost: true} })
		time.Sleep(time.Millisecond)
		a.Restore(nil) // the new server knows nothing of l
		failover := time.Now()
		got := lock(t, old, "k")
		if held.Err() == nil {
			t.Error("two holders (I1)")
		}
		if waited := time.Since(failover); waited < 30*time.Second || waited > 31*time.Second {
			t.Errorf("it was granted after %v, and the longest Grace is 30 s", waited)
		}
		unlock(t, got)
	})
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		young := start(t, a, &coord.Options{SessionTTL: 25 * time.Second})
		old := start(t, a, nil)
		if err := young.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // some renewals
		a.Restore(nil)
		failover := time.Now()
		unlock(t, lock(t, old, "k"))
		if waited := time.Since(failover); waited < 12*time.Second || waited > 13*time.Second {
			t.Errorf("it was granted after %v, and the longest Grace is 12 s", waited)
		}
	})
}

// A process that has lost its session may go by a Grace that is too short by now: it sends nothing
// until it has another one.
func TestUnlock_IsNotSentWithoutASession(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		cut := &faulty{Arbiter: a}
		c := start(t, cut, nil)
		l := lock(t, c, "k")
		var releases, sessions atomic.Int64
		cut.set(func(op string) fault {
			switch op {
			case "unlock":
				if sessions.Load() == 0 {
					releases.Add(1)
				}
			case "renew", "open":
				return fault{lost: true}
			}
			return fault{}
		})
		<-l.Context().Done()
		_ = l.Unlock()
		time.Sleep(20 * time.Second)
		if n := releases.Load(); n > 0 {
			t.Errorf("%d releases while there was no session", n)
		}
		sessions.Add(1)
		cut.set(nil)
		unlock(t, lock(t, c, "k"))
	})
}

// deployed is the lock of a process in one phase of a change of Partitions.
type deployed func(ctx context.Context, key string) (unlock func(), err error)

// alone locks in one namespace.
func alone(c *coord.Coordinator) deployed {
	return func(ctx context.Context, key string) (func(), error) {
		l, err := c.Lock(ctx, key)
		return func() { _ = l.Unlock() }, err
	}
}

// both locks in the old namespace, then in the new one, as docs/operations.md says.
func both(before, after *coord.Coordinator) deployed {
	return func(ctx context.Context, key string) (func(), error) {
		old, err := before.Lock(ctx, key)
		if err != nil {
			return nil, err
		}
		l, err := after.Lock(ctx, key)
		if err != nil {
			_ = old.Unlock()
			return nil, err
		}
		return func() {
			_ = l.Unlock()
			_ = old.Unlock()
		}, nil
	}
}

// overlaps runs processes that take the same key again and again for a while, and returns how often
// two had it.
func overlaps(t *testing.T, processes ...deployed) (n int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var inside, twice, sections atomic.Int64
	done := make(chan struct{})
	for _, locked := range processes {
		go func() {
			defer func() { done <- struct{}{} }()
			for ctx.Err() == nil {
				unlock, err := locked(ctx, "k")
				if err != nil {
					continue // ctx has ended
				}
				if inside.Add(1) > 1 {
					twice.Add(1)
				}
				sections.Add(1)
				time.Sleep(3 * time.Millisecond)
				inside.Add(-1)
				unlock()
			}
		}()
	}
	for range processes {
		<-done
	}
	if sections.Load() < 100 {
		t.Errorf("%d sections in 2 s", sections.Load())
	}
	return twice.Load()
}

// The phases of docs/operations.md, "Changing Partitions while processes run".
func TestOperations_PartitionsChangeInTwoDeployments(t *testing.T) {
	takes.Seconds(t)
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		old := func() *coord.Coordinator { return startDefault(t, a, &coord.Options{Namespace: "shop"}) }
		next := func() *coord.Coordinator {
			return start(t, a, &coord.Options{Namespace: "shop-2", Partitions: 31, Grace: 30 * time.Second})
		}
		first, second := alone(old()), alone(next())
		if n := overlaps(t, first, both(old(), next()), both(old(), next())); n > 0 {
			t.Errorf("the first deployment: %d times two holders (I1)", n)
		}
		if n := overlaps(t, both(old(), next()), both(old(), next()), second); n > 0 {
			t.Errorf("the second deployment: %d times two holders (I1)", n)
		}
		if overlaps(t, first, second) == 0 { // the effect of leaving out the first deployment
			t.Error("the test does not notice two holders")
		}
	})
}

// The steps of docs/operations.md, "Changing Partitions with a stop": nothing is left in the old
// namespace, and tokens go on rising.
func TestOperations_PartitionsChangeWithAStop(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		var last coord.Fence
		for i, opts := range []coord.Options{
			{Namespace: "shop"},
			{Namespace: "shop-2", Partitions: 31},
			{Namespace: "shop-3", Partitions: 31, SessionTTL: 20 * time.Second},
		} {
			c, err := coord.New(t.Context(), a, &opts)
			if err != nil {
				t.Fatal(err)
			}
			for range 10 {
				l := lock(t, c, "k")
				if l.Fence() <= last {
					t.Errorf("step %d: token %v after %v (I2)", i, l.Fence(), last)
				}
				last = l.Fence()
				unlock(t, l)
				time.Sleep(time.Second)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute) // a crashed process's locks have expired
		}
	})
}

// After a stop the first process with a longer SessionTTL waits for the end of a session that a
// killed process left.
func TestNew_ALongerSessionTTLAfterAKill(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		const life = 20 * time.Second
		s := fallback.Settings{Namespace: "holdfast", Partitions: 1021, Grace: 22 * time.Second, Lease: life}
		crashed(t, a, s, "killed", 0, life)
		begin := time.Now()
		start(t, a, &coord.Options{SessionTTL: 30 * time.Second, Partitions: s.Partitions})
		if waited := time.Since(begin); waited < life || waited > life+2*time.Second {
			t.Errorf("the first process with a longer SessionTTL started after %v", waited)
		}
	})
}

// fullArbiter has no room for a session for some time.
type fullArbiter struct {
	fallback.Arbiter
	room time.Time
}

type fullSpace struct {
	fallback.Namespace
	a *fullArbiter
}

func (a *fullArbiter) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := a.Arbiter.Attach(ctx, s)
	return fullSpace{n, a}, err
}

func (n fullSpace) Open(ctx context.Context, session string, r fallback.Registration) (fallback.Renewal, error) {
	if time.Now().Before(n.a.room) {
		return fallback.Renewal{}, fmt.Errorf("%w: too many sessions: %w", fallback.ErrRefused, fallback.ErrWait)
	}
	return n.Namespace.Open(ctx, session, r)
}

// A table of sessions that is full may have room when it is known which of them have ended.
func TestNew_WaitsForRoom(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		begin := time.Now()
		start(t, &fullArbiter{a, begin.Add(11 * time.Second)}, nil)
		if waited := time.Since(begin); waited != 11*time.Second {
			t.Errorf("started after %v", waited)
		}
		begin = time.Now()
		_, err := coord.New(t.Context(), &fullArbiter{a, begin.Add(time.Hour)}, &coord.Options{Partitions: 61})
		if waited := time.Since(begin); !errors.Is(err, coord.ErrUnavailable) || !errors.Is(err, fallback.ErrRefused) || waited < 12*time.Second || waited > 18*time.Second {
			t.Errorf("after %v: %v", waited, err)
		}
		logged := newRecords()
		start(t, &fullArbiter{a, time.Now().Add(11 * time.Second)}, &coord.Options{StartUnavailable: true, Logger: slog.New(logged)})
		time.Sleep(12 * time.Second)
		for text, want := range map[string]int{
			"holdfast: no session yet: the table of sessions is full, until it is known which of them have ended": 1,
			"holdfast: no session: a setting is wrong":                                                            0,
			"holdfast: session begins": 1,
		} {
			if got := len(logged.about(text)); got != want {
				t.Errorf("%q: %d, want %d", text, got, want)
			}
		}
	})
}
