package coord_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// slowly has a request for a block be under way for so long.
const slowly = 500 * time.Millisecond

// growing runs f with a semaphore of 100 in a process with a block of n permits. All of them are in
// use, one by one, and the arbiter has become slow.
func growing(t *testing.T, n int, f func(t *testing.T, c *coord.Coordinator, s *coord.Semaphore, used []coord.Permits)) {
	t.Helper()
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		c := start(t, net, nil)
		s := c.Semaphore("k", 100)
		release(t, acquire(t, s, n))
		used := make([]coord.Permits, n)
		for i := range used {
			used[i] = acquire(t, s, 1)
		}
		net.set(func(op string) fault {
			if op == "lock" {
				return fault{request: slowly}
			}
			return fault{}
		})
		f(t, c, s, used)
	})
}

// line has callers wait for permits, and tells which of them got some.
type line struct {
	t    *testing.T
	s    *coord.Semaphore
	work sync.WaitGroup

	mu  sync.Mutex // protects the fields below
	got []string
	all map[string]coord.Permits
}

// wait has a caller wait for n permits, behind those that wait already.
func (l *line) wait(ctx context.Context, name string, n int) {
	l.work.Go(func() {
		p, err := l.s.Acquire(ctx, n)
		if errors.Is(err, context.Canceled) {
			return
		}
		if err != nil {
			l.t.Errorf("%s: %v", name, err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.all == nil {
			l.all = make(map[string]coord.Permits)
		}
		l.all[name], l.got = p, append(l.got, name)
	})
	synctest.Wait()
}

// has checks that these callers got permits since it was called last, and no others. Those that got
// some in the same moment are sorted.
func (l *line) has(names ...string) {
	l.t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.Sort(l.got)
	if !slices.Equal(l.got, names) {
		l.t.Errorf("%q have got permits, not %q", l.got, names)
	}
	l.got = nil
}

// release has a caller give its permits back.
func (l *line) release(name string) {
	l.mu.Lock()
	p := l.all[name]
	l.mu.Unlock()
	release(l.t, p)
}

// A caller that waits for a larger block gets permits that come back meanwhile, at once.
func TestGrowth_TakesWhatComesBack(t *testing.T) {
	growing(t, 1, func(t *testing.T, c *coord.Coordinator, s *coord.Semaphore, used []coord.Permits) {
		l := line{t: t, s: s}
		before := c.Stats().Permits
		began := time.Now()
		l.wait(t.Context(), "waits", 1)
		l.has()
		release(t, used[0])
		l.has("waits")
		l.release("waits")
		release(t, acquire(t, s, 1)) // a later one finds them, too
		if d := time.Since(began); d > 0 {
			t.Errorf("it took %v", d)
		}
		if x := c.Stats().Permits; x.Local != before.Local+2 || x.Asked != before.Asked+1 {
			t.Errorf("%+v, after %+v", x, before)
		}

		time.Sleep(2 * slowly) // the larger block is kept, as no caller waits for it any more
		if x := c.Stats().Permits; x.Asked != before.Asked+1 {
			t.Errorf("%d blocks were asked for", x.Asked-before.Asked)
		}
		release(t, acquire(t, s, 1), acquire(t, s, 1))
		time.Sleep(4 * time.Second)
		if info, err := s.Inspect(t.Context()); err != nil || len(info.Shared) > 0 {
			t.Errorf("blocks that are not used: %+v, %v", info.Shared, err)
		}
	})
}

// Callers that wait for a larger block are served in the order in which they came: a large request
// is not starved by small ones.
func TestGrowth_ServesInOrder(t *testing.T) {
	growing(t, 3, func(t *testing.T, _ *coord.Coordinator, s *coord.Semaphore, used []coord.Permits) {
		l := line{t: t, s: s}
		began := time.Now()
		l.wait(t.Context(), "large", 2)
		l.wait(t.Context(), "small", 1)
		l.wait(t.Context(), "third", 1)
		l.wait(t.Context(), "largest", 3)
		l.wait(t.Context(), "fifth", 1)
		release(t, used[0])
		l.has() // two are too many
		release(t, used[1])
		l.has("large")
		release(t, used[2])
		l.has("small")
		l.release("small")
		l.has("third")
		l.release("third")
		l.wait(t.Context(), "last", 1)
		l.has()
		l.release("large")
		l.has("largest")
		if d := time.Since(began); d > 0 {
			t.Errorf("it took %v", d)
		}
		time.Sleep(slowly) // the block that was asked for first, for one caller
		l.has("fifth", "last")
		for _, name := range []string{"largest", "fifth", "last"} {
			l.release(name)
		}
		l.work.Wait()
	})
}

// Callers that came after a larger block was asked for get the next one, in their order.
func TestGrowth_GoesOn(t *testing.T) {
	growing(t, 1, func(t *testing.T, c *coord.Coordinator, s *coord.Semaphore, used []coord.Permits) {
		l := line{t: t, s: s}
		before := c.Stats().Permits
		l.wait(t.Context(), "first", 1)
		l.wait(t.Context(), "large", 20)
		l.wait(t.Context(), "small", 1)
		time.Sleep(slowly)
		l.has("first")
		time.Sleep(slowly)
		l.has("large", "small")
		if x := c.Stats().Permits; x.Asked != before.Asked+2 || x.Local != before.Local {
			t.Errorf("%+v, after %+v", x, before)
		}
		l.release("first")
		l.release("large")
		l.release("small")
		release(t, used...)
		l.work.Wait()
	})
}

// Callers that come at the same time wait for one answer: the process asks for more than the one
// that came first needs.
func TestGrowth_OfARush(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		c := start(t, net, nil)
		net.set(func(op string) fault {
			if op == "lock" {
				return fault{request: slowly}
			}
			return fault{}
		})
		l := line{t: t, s: c.Semaphore("k", 640)}
		names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		for _, name := range names {
			l.wait(t.Context(), name, 1)
		}
		time.Sleep(slowly)
		l.has(names...)
		if n := c.Stats().Permits.Asked; n != 2 {
			t.Errorf("%d blocks were asked for", n)
		}
		for _, name := range names {
			l.release(name)
		}
		l.work.Wait()
	})
}

// A limit that does not bind costs bursts of eight processes, which come after their blocks went
// back, little more than a request. It made half of the sections where callers waited for two
// requests, one after the other, while permits came back.
func TestGrowth_OfBursts(t *testing.T) {
	const (
		request    = 50 * time.Millisecond
		on, period = 4 * request, 3 * time.Second
		bursts     = 4
	)
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		var all []*coord.Semaphore
		for range 8 {
			net := &faulty{Arbiter: a}
			all = append(all, start(t, net, nil).Semaphore("k", 640))
			net.set(func(op string) fault {
				if op == "lock" {
					return fault{request: request}
				}
				return fault{}
			})
		}
		sections := func(section func(s *coord.Semaphore)) (n int64) {
			var sum atomic.Int64
			for range bursts {
				var work sync.WaitGroup
				end := time.Now().Add(on)
				for i := range 8 * len(all) {
					work.Go(func() {
						for time.Now().Before(end) {
							section(all[i%len(all)])
							sum.Add(1)
						}
					})
				}
				work.Wait()
				time.Sleep(time.Until(end) + period)
			}
			return sum.Load()
		}
		job := func() { time.Sleep(request + rand.N(request)) }
		unlimited := sections(func(*coord.Semaphore) { job() })
		limited := sections(func(s *coord.Semaphore) {
			p := acquire(t, s, 1)
			job()
			release(t, p)
		})
		ratio := float64(unlimited) / float64(limited)
		t.Logf("no limit made %d sections, which is %.2f times %d", unlimited, ratio, limited)
		if ratio > 1.4 {
			t.Errorf("no limit made %.2f times the sections", ratio)
		}
	})
}

// A caller that waits no more leaves the free permits, which were too few for it, to those behind
// it.
func TestGrowth_OneIsCancelled(t *testing.T) {
	growing(t, 2, func(t *testing.T, _ *coord.Coordinator, s *coord.Semaphore, used []coord.Permits) {
		l := line{t: t, s: s}
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		l.wait(ctx, "large", 10)
		l.wait(t.Context(), "small", 1)
		release(t, used[0])
		l.has()
		cancel()
		l.has("small")
		if d := time.Since(began); d > 0 {
			t.Errorf("it took %v", d)
		}
		l.release("small")
		release(t, used[1])
		l.work.Wait()
	})
}

// Permits that a caller got after its context had ended, and before it noticed that, are not lost.
func TestGrowth_OneIsCancelledThatWasServed(t *testing.T) {
	served := 0
	for range 40 {
		growing(t, 1, func(t *testing.T, c *coord.Coordinator, s *coord.Semaphore, used []coord.Permits) {
			l := line{t: t, s: s}
			ctx, cancel := context.WithCancel(t.Context())
			before := c.Stats().Permits.Local
			began := time.Now()
			l.wait(ctx, "cancelled", 1)
			l.wait(t.Context(), "next", 1)
			cancel()
			release(t, used[0])
			l.has("next")
			if d := time.Since(began); d > 0 {
				t.Errorf("it took %v", d)
			}
			if c.Stats().Permits.Local == before+2 {
				served++
			}
			l.release("next")
			l.work.Wait()
			time.Sleep(2 * slowly)
			info, err := s.Inspect(t.Context())
			for _, h := range info.Shared {
				if h.Free != h.Permits {
					t.Errorf("%+v", h)
				}
			}
			if err != nil || len(info.Shared) == 0 {
				t.Errorf("%+v, %v", info.Shared, err)
			}
		})
	}
	if served == 0 {
		t.Error("all callers noticed first that their contexts had ended")
	}
}

// Permits that another process waits for are not given to callers that wait in this one.
func TestGrowth_GivesWayToOthers(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		one, two := start(t, net, nil), start(t, a, nil)
		used := acquire(t, one.Semaphore("k", 10), 1)
		net.set(func(op string) fault {
			if op == "lock" {
				return fault{request: slowly}
			}
			return fault{}
		})
		here, there := line{t: t, s: one.Semaphore("k", 10)}, line{t: t, s: two.Semaphore("k", 10)}
		here.wait(t.Context(), "here", 1)
		there.wait(t.Context(), "there", 10)
		time.Sleep(slowly / 2) // the process hears of it
		release(t, used)
		time.Sleep(slowly / 5)
		here.has()
		there.has("there")
		there.release("there")
		time.Sleep(3 * slowly)
		here.has("here")
		here.release("here")
		here.work.Wait()
	})
}

// Without blocks that are kept, permits that come back are those of the callers that wait all the
// same.
func TestGrowth_WithoutLinger(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		c := start(t, net, &coord.Options{Handoff: coord.Handoff{Linger: -1}})
		s := c.Semaphore("k", 100)
		used := acquire(t, s, 1)
		net.set(func(op string) fault { return fault{request: slowly} })
		l := line{t: t, s: s}
		began := time.Now()
		l.wait(t.Context(), "waits", 1)
		release(t, used)
		l.has("waits")
		if d := time.Since(began); d > 0 {
			t.Errorf("it took %v", d)
		}
		l.release("waits")
		l.work.Wait()
		time.Sleep(3 * slowly)
		net.mend()
		if info, err := s.Inspect(t.Context()); err != nil || len(info.Shared) > 0 {
			t.Errorf("blocks that are not used: %+v, %v", info.Shared, err)
		}
	})
}

// A caller that leaves before there is any answer is told that, as one that waits for a lock is.
func TestGrowth_WithoutAnAnswer(t *testing.T) {
	growing(t, 1, func(t *testing.T, _ *coord.Coordinator, s *coord.Semaphore, used []coord.Permits) {
		ctx, cancel := context.WithTimeout(t.Context(), slowly/2)
		defer cancel()
		_, err := s.Acquire(ctx, 1)
		if !errors.Is(err, coord.ErrUnavailable) || errors.Is(err, coord.ErrLocked) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		release(t, used...)
	})
}
