package coord_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestAnnounce_ReachesWatchersOfAllProcesses(t *testing.T) {
	t.Run("in memory", func(t *testing.T) { a := fallback.NewMemory(); testAnnounce(t, a, a) })
	t.Run("Redis", func(t *testing.T) {
		s := redistest.Start(t)
		testAnnounce(t, overRedis(t, s), overRedis(t, s))
	})
}

func testAnnounce(t *testing.T, a, b fallback.Arbiter) {
	c, other := start(t, a, nil), start(t, b, nil)
	apart := start(t, b, &coord.Options{Namespace: "apart"})
	here, stop := c.Watch("k")
	defer stop()
	there, stop := other.Watch("k")
	defer stop()
	elsewhere, stop := apart.Watch("k")
	defer stop()
	another, stop := other.Watch("another")
	defer stop()
	if err := c.Announce(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	<-here
	<-there
	if err := other.Announce(t.Context(), "another"); err != nil { // it comes after the news that is to be missing
		t.Fatal(err)
	}
	<-another
	select {
	case <-elsewhere:
		t.Error("a watcher in another namespace was told")
	default:
	}
}

// A watcher that may have missed something is told to look.
func TestWatch_IsToldOfAGap(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		changed, stop := c.Watch("k")
		a.Restore(a.Snapshot())
		<-changed
		stop()
		stop()
		if err := c.Announce(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(changed) > 0 {
			t.Error("told after stop")
		}
	})
}

// Waits that are expected make no key look stuck, and hide none that is: they count for no longest
// wait, and Top lists them last and marks them.
func TestExpectLong_HidesNoStuckKey(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		leader, c := start(t, a, nil), start(t, a, nil)
		for _, key := range []string{"leader", "stuck"} {
			defer unlock(t, lock(t, leader, key))
		}
		stop := c.ExpectLong("leader")
		waitFor(t, t.Context(), c, "leader", 2)
		time.Sleep(10 * time.Second) // these have waited for longest
		if w := c.Stats().LongestWait; w != 0 {
			t.Errorf("the longest wait is %v, and it is expected", w)
		}
		waitFor(t, t.Context(), c, "stuck", 1)
		time.Sleep(10 * time.Second)
		if w := c.Stats().LongestWait; w < 5*time.Second || w > 11*time.Second {
			t.Errorf("the longest wait that is not expected is %v", w)
		}
		for _, by := range []coord.By{coord.LongestWait, coord.MostWaitedFor} {
			first, err := c.Top(t.Context(), 1, by)
			if err != nil || len(first.Keys) != 1 || first.Keys[0].Key != "stuck" || first.Keys[0].Expected {
				t.Errorf("by %v: %+v, %v", by, first, err)
			}
			all, err := c.Top(t.Context(), 10, by)
			if err != nil || len(all.Keys) != 2 || all.Keys[1].Key != "leader" || !all.Keys[1].Expected || all.Keys[1].Waiters != 2 {
				t.Errorf("by %v: %+v, %v", by, all, err)
			}
		}
		stop()
		first, err := c.Top(t.Context(), 1, coord.LongestWait)
		if w := c.Stats().LongestWait; err != nil || first.Keys[0].Key != "leader" || first.Keys[0].Expected || w < 15*time.Second {
			t.Errorf("after stop: %+v, %v, %v", first, err, w)
		}
	})
}

// Readers and permits have holds with names of their own, and records tell of them by key and mode.
func TestExpectLong_ReadersAndPermits(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		h := newRecords()
		o := named("other", h)
		o.LongWait, o.LongHold = time.Second, time.Second
		c, other := start(t, a, nil), start(t, a, o)
		late := func() {
			l := lock(t, c, "k")
			p, err := c.Semaphore("k", 8).Acquire(t.Context(), 8)
			if err != nil {
				t.Fatal(err)
			}
			var work sync.WaitGroup
			for range 3 {
				work.Go(func() {
					r := rlock(t, other, "k")
					time.Sleep(5 * time.Second)
					runlock(t, r)
				})
			}
			work.Go(func() {
				p, err := other.Semaphore("k", 8).Acquire(t.Context(), 1)
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(5 * time.Second)
				_ = p.Release()
			})
			time.Sleep(10 * time.Second)
			if w := other.Stats().LongestWait; (w == 0) != (len(h.atLeast(slog.LevelWarn)) == 0) {
				t.Errorf("the longest wait is %v, with the records %v", w, h.atLeast(slog.LevelWarn))
			}
			unlock(t, l)
			if err := p.Release(); err != nil {
				t.Error(err)
			}
			work.Wait()
		}
		stop := other.ExpectLong("k")
		late()
		if all := h.atLeast(slog.LevelWarn); len(all) > 0 {
			t.Errorf("%v", all)
		}
		stop()
		time.Sleep(10 * time.Second)
		late()
		seen := make(map[string]int64)
		for _, r := range h.atLeast(slog.LevelWarn) {
			if r.attrs["key"].String() != "k" {
				t.Errorf("%v", r)
			}
			mode, _, _ := strings.Cut(strings.TrimLeft(r.attrs["mode"].String(), "0123456789 "), " ")
			waiting := int64(0)
			if r.text == longWait {
				waiting = r.attrs["waiting"].Int64()
			}
			seen[r.text+" "+mode] += 1 + 10*waiting
		}
		for what, want := range map[string]int64{longWait + " read": 31, longWait + " of": 11, longHold + " read": 1, longHold + " of": 1} {
			if seen[what] != want {
				t.Errorf("%q: %d, want %d: %v", what, seen[what], want, h.all)
			}
		}
	})
}

func TestExpectLong_SilencesRecords(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		var out bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&out, nil))
		c, other := start(t, a, nil), start(t, a, &coord.Options{Logger: logger, LongWait: time.Second, LongHold: time.Second})
		stop := other.ExpectLong("k")
		l := lock(t, c, "k")
		done := make(chan struct{})
		go func() {
			defer close(done)
			l := lock(t, other, "k")
			time.Sleep(5 * time.Second)
			l.Unlock()
		}()
		time.Sleep(5 * time.Second)
		l.Unlock()
		<-done
		if s := out.String(); strings.Contains(s, "for long") {
			t.Error(s)
		}
		stop()
		l = lock(t, other, "k")
		time.Sleep(5 * time.Second)
		l.Unlock()
		if s := out.String(); strings.Count(s, "held for long") != 1 {
			t.Error(s)
		}
	})
}
