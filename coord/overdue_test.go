package coord_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
)

const (
	longWait  = "holdfast: callers have waited for long"
	moreWaits = "holdfast: callers have waited for long for more keys"
	longHold  = "holdfast: a lock has been held for long"
	moreHolds = "holdfast: more locks have been held for long"
)

// named are options of a process with a name, whose records go to h.
func named(name string, h slog.Handler) *coord.Options {
	return &coord.Options{Name: name, Logger: slog.New(h), LogCallers: true}
}

func TestLog_LongWaitsAndHolds(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		here, there := newRecords(), newRecords()
		one, two := start(t, a, named("one", here)), start(t, a, named("two", there))
		l := lock(t, one, "k")
		ctx, cancel := context.WithTimeout(t.Context(), 65*time.Second)
		defer cancel()
		var work sync.WaitGroup
		for _, c := range []*coord.Coordinator{one, one, two} {
			work.Go(func() {
				if _, err := c.Lock(ctx, "k"); !errors.Is(err, coord.ErrLocked) {
					t.Error(err)
				}
			})
		}
		time.Sleep(9 * time.Second)
		if n := len(here.about(longWait)) + len(there.about(longWait)); n > 0 {
			t.Errorf("%d records after 9 s", n)
		}
		for _, c := range []*coord.Coordinator{one, two} {
			if w := c.Stats().LongestWait; w < 6*time.Second || w > 9*time.Second { // it is looked for every 2.5 s
				t.Errorf("the longest wait after 9 s is %v", w)
			}
		}
		work.Wait()
		if w := one.Stats().LongestWait; w != 0 {
			t.Errorf("the longest wait is %v, and none waits", w)
		}
		if n := len(here.about(longHold)); n != 1 {
			t.Fatalf("%d records of a lock held for 65 s: %v", n, here.all)
		}
		hold := here.about(longHold)[0].attrs
		if hold["key"].String() != "k" || hold["fence"].String() != l.Fence().String() || hold["held"].Duration() < time.Minute ||
			hold["process"].String() != "one" || !strings.Contains(hold["caller"].String(), "coord_test.lock coord_test.go:") {
			t.Errorf("%v", hold)
		}
		for name, h := range map[string]records{"one": here, "two": there} {
			waits := h.about(longWait)
			if len(waits) != 1 {
				t.Fatalf("%s: %d records of long waits: %v", name, len(waits), waits)
			}
			w := waits[0].attrs
			if want := map[string]int64{"one": 2, "two": 1}[name]; w["waiting"].Int64() != want || w["key"].String() != "k" ||
				w["holder"].String() != "one" || w["waited"].Duration() < 10*time.Second || w["waited"].Duration() > 20*time.Second ||
				!strings.Contains(w["caller"].String(), "TestLog_LongWaitsAndHolds") || w["reason"].Any() != coord.ErrLocked {
				t.Errorf("%s: %v", name, waits)
			}
			if got := w["holder_caller"].String(); strings.Contains(got, "coord_test.lock") != (name == "one") {
				t.Errorf("%s: held at %q", name, got)
			}
		}
		unlock(t, l)
	})
}

// Turns that are handed over are not one long lock, and a wait for a key in steady use is not a
// long one.
func TestLog_WhatMovesOnIsNotLong(t *testing.T) {
	takes.Seconds(t)
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		h := newRecords()
		o := named("one", h)
		o.LogCallers = false
		c := start(t, a, o)
		var work sync.WaitGroup
		for range 3 {
			work.Go(func() {
				for range 20 {
					l := lock(t, c, "k")
					time.Sleep(4 * time.Second)
					unlock(t, l)
				}
			})
		}
		work.Wait()
		if all := h.atLeast(slog.LevelWarn); len(all) > 0 {
			t.Errorf("%v", all)
		}
	})
}

func TestLog_ManyLongWaitsAndHoldsAreFewRecords(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		h := newRecords()
		o := named("one", h)
		o.LongWait, o.LongHold = 2*time.Second, 3*time.Second
		c := start(t, a, o)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var work sync.WaitGroup
		for i := range 100 {
			l := lock(t, c, fmt.Sprint(i))
			defer l.Unlock()
			work.Go(func() { _, _ = c.Lock(ctx, l.Key()) })
		}
		synctest.Wait()
		work.Wait()
		for text, want := range map[string]int{longWait: 10, moreWaits: 1, longHold: 10, moreHolds: 1} {
			if got := h.about(text); len(got) != want {
				t.Errorf("%q: %d records, want %d", text, len(got), want)
			}
		}
		if got := h.about(moreHolds); len(got) == 1 && got[0].attrs["count"].Int64() != 90 {
			t.Errorf("%v", got)
		}
	})
}

func TestLog_LongWaitsAndHoldsCanBeOff(t *testing.T) {
	takes.Seconds(t)
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		h := newRecords()
		c := start(t, a, &coord.Options{Logger: slog.New(h), LongWait: -1, LongHold: -1})
		l := lock(t, c, "k")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, _ = c.Lock(ctx, "k")
		unlock(t, l)
		if all := h.atLeast(slog.LevelWarn); len(all) > 0 {
			t.Errorf("%v", all)
		}
	})
}

func TestLog_ManyLossesAreOneRecord(t *testing.T) {
	takes.Seconds(t)
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		h := newRecords()
		f := &faulty{Arbiter: a}
		o := named("one", h)
		o.LogCallers = false
		c := startDefault(t, f, o)
		const n = 2000
		for i := range n {
			lock(t, c, fmt.Sprint(i))
		}
		single := lock(t, c, "single")
		f.set(func(string) fault { return fault{lost: true} })
		time.Sleep(time.Minute)
		f.set(nil)
		time.Sleep(time.Minute)
		if err := single.Unlock(); !errors.Is(err, coord.ErrLost) {
			t.Error(err)
		}
		got := h.about("holdfast: locks lost")
		if len(got) != 1 || got[0].attrs["count"].Int64() != n+1 || got[0].attrs["cause"].Any() != coord.SessionExpired {
			t.Errorf("%v", got)
		}
	})
}

// In a cluster the owner of a key knows which process has it, and others know the owner.
func TestLog_LongWaitsInACluster(t *testing.T) {
	takes.Seconds(t)
	a := fallback.NewMemory()
	logs := map[string]records{"one": newRecords(), "two": newRecords()}
	nodes := make(map[string]*coord.Coordinator)
	for name, h := range logs {
		o := unhurried()
		o.Name, o.Logger, o.LongWait = name, slog.New(h), 200*time.Millisecond
		nodes[name] = join(t, a, o)
	}
	one, two := nodes["one"], nodes["two"]
	settled(t, 61, one, two)
	key := keyOf(t, one)
	if n, ok := two.Owner(key); !ok || n.Name != "one" || !strings.HasPrefix(n.ID, "one/") {
		t.Errorf("the owner is %+v", n)
	}
	for holder, waiter := range map[*coord.Coordinator]string{two: "one", one: "two"} {
		l := lock(t, holder, key)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = nodes[waiter].Lock(ctx, key)
		}()
		await.Until(t, "a record of the long wait", func() bool { return len(logs[waiter].about(longWait)) > 0 })
		cancel()
		<-done
		unlock(t, l)
	}
	const absent = "<nil>"
	for name, want := range map[string][2]string{"one": {"two", absent}, "two": {absent, "one"}} {
		got := logs[name].about(longWait)
		if len(got) != 1 || got[0].attrs["holder"].String() != want[0] || got[0].attrs["owner"].String() != want[1] {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// keyOf returns a key that a node owns.
func keyOf(t *testing.T, c *coord.Coordinator) string {
	t.Helper()
	for i := range 10_000 {
		if n, ok := c.Owner(fmt.Sprint(i)); ok && n.Self {
			return fmt.Sprint(i)
		}
	}
	t.Fatal("the node owns no key")
	return ""
}

// A caller that waits for the arbiter waits for no holder: it does not count for the longest wait,
// which is about holders that are stuck.
func TestStats_LongestWaitIsForAnotherCaller(t *testing.T) {
	bubble(t, func(t *testing.T, m *fallback.Memory) {
		a := &faulty{Arbiter: m}
		c := start(t, a, nil)
		l := lock(t, c, "held")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		a.cut()
		var work sync.WaitGroup
		work.Go(func() {
			if _, err := c.Lock(ctx, "free"); !errors.Is(err, coord.ErrUnavailable) {
				t.Error(err)
			}
		})
		time.Sleep(4 * time.Second)
		if s := c.Stats(); s.Waiting != 1 || s.LongestWait != 0 {
			t.Errorf("%d callers wait, the first for %v for another one", s.Waiting, s.LongestWait)
		}
		work.Go(func() {
			if _, err := c.Lock(ctx, "held"); !errors.Is(err, coord.ErrLocked) {
				t.Error(err)
			}
		})
		time.Sleep(900 * time.Millisecond)
		if w := c.Stats().LongestWait; w != 900*time.Millisecond {
			t.Errorf("the longest wait for another caller is %v", w)
		}
		work.Wait()
		a.mend()
		unlock(t, l)
	})
}

// A lock that is held on and on while callers of other processes give up after a few seconds: no
// wait is long, and Stats counts those that gave up, and tells how long a lock that others wanted
// has been held.
func TestStats_CallersThatGiveUp(t *testing.T) {
	bubble(t, func(t *testing.T, m *fallback.Memory) {
		a := &faulty{Arbiter: m}
		holder, other := start(t, a, named("holder", newRecords())), start(t, a, named("other", newRecords()))
		unwanted := lock(t, holder, "another key")
		l := lock(t, holder, "k")
		began := time.Now()
		for range 4 {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			if _, err := other.Lock(ctx, "k"); !errors.Is(err, coord.ErrLocked) {
				t.Error(err)
			}
			cancel()
			if _, err := other.TryLock(t.Context(), "k"); !errors.Is(err, coord.ErrLocked) {
				t.Error(err)
			}
		}
		for _, wait := range []func(context.Context) error{
			func(ctx context.Context) error { _, err := other.Lock(ctx, "k"); return err },
			func(ctx context.Context) error { _, err := other.RLock(ctx, "k"); return err },
			func(ctx context.Context) error { _, err := other.LockAll(ctx, "k", "k2"); return err },
		} {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			if err := wait(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if s := other.Stats(); s.GaveUp["locked"] != 4 || s.GaveUp["canceled"] != 3 || len(s.GaveUp) != 2 || s.LongestHold != 0 || s.LongestWait != 0 {
			t.Errorf("%v gave up, %v, %v", s.GaveUp, s.LongestHold, s.LongestWait)
		}
		if s, held := holder.Stats(), time.Since(began); len(s.GaveUp) != 0 || s.LongestHold < held-3*time.Second || s.LongestHold > held {
			t.Errorf("%v gave up, a lock that others wanted is held for %v, of %v", s.GaveUp, s.LongestHold, held)
		}
		list, err := other.Top(t.Context(), 5, coord.LongestHeld)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range list.Keys {
			t.Errorf("without a cluster others' holds are not told: %+v", k)
		}
		list, err = holder.Top(t.Context(), 5, coord.LongestHeld)
		if err != nil || len(list.Keys) != 2 || list.Keys[0].Wanted || !list.Keys[1].Wanted {
			t.Errorf("%+v, %v", list, err)
		}
		stop := holder.ExpectLong("k")
		if s := holder.Stats(); s.LongestHold != 0 {
			t.Errorf("expected: %v", s.LongestHold)
		}
		stop()
		unlock(t, l)
		unlock(t, unwanted)
		if s := holder.Stats(); s.LongestHold != 0 {
			t.Errorf("not held any more: %v", s.LongestHold)
		}
		a.cut()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := other.Lock(ctx, "k"); !errors.Is(err, coord.ErrUnavailable) {
			t.Error(err)
		}
		if n := other.Stats().GaveUp["unavailable"]; n != 1 {
			t.Errorf("%d waited for the arbiter", n)
		}
		a.mend()
	})
}
