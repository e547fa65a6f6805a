package coord_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

func acquire(t *testing.T, s *coord.Semaphore, n int) coord.Permits {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := s.Acquire(ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func release(t *testing.T, all ...coord.Permits) {
	t.Helper()
	for _, p := range all {
		if err := p.Release(); err != nil {
			t.Error(err)
		}
	}
}

// partly returns a permit of a block of n; no other caller has one.
func partly(t *testing.T, s *coord.Semaphore, n int) coord.Permits {
	t.Helper()
	release(t, acquire(t, s, n))
	return acquire(t, s, 1)
}

// inBoth runs a test with two processes and the arbiter alone. Then it runs it with two nodes of a
// cluster, each as the one and as the other.
func inBoth(t *testing.T, f func(t *testing.T, key string, one, two *coord.Coordinator)) {
	t.Run("at the arbiter", func(t *testing.T) {
		bubble(t, func(t *testing.T, a *fallback.Memory) { f(t, "k", start(t, a, nil), start(t, a, nil)) })
	})
	t.Run("in a cluster", func(t *testing.T) {
		store := fallback.NewMemory()
		one, two := join(t, store, unhurried()), join(t, store, unhurried())
		settled(t, 61, one, two)
		f(t, "k", one, two)
		f(t, "l", two, one)
	})
}

// A process asks for permits once, and its callers share them.
func TestBlock_IsShared(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		s := c.Semaphore("k", 1000)
		for range 50 {
			release(t, acquire(t, s, 1))
		}
		if x := c.Stats().Permits; x.Asked != 1 || x.Local != 49 {
			t.Errorf("%+v", x)
		}
		var all [64]coord.Permits
		var work sync.WaitGroup
		for i := range all {
			work.Go(func() { all[i] = acquire(t, s, 1+i%2) })
		}
		work.Wait()
		info, err := s.Inspect(t.Context())
		sum, free := 0, 0
		for _, h := range info.Shared {
			sum, free = sum+h.Permits, free+h.Free
			if !h.Locked && h.Free != h.Permits || h.Of != 1000 {
				t.Errorf("%+v", h)
			}
		}
		if err != nil || sum-free != 96 || len(info.Shared) > 12 {
			t.Errorf("%d permits, %d of them free, in %d blocks: %v", sum, free, len(info.Shared), err)
		}
		if x := c.Stats().Permits; x.Asked > 12 {
			t.Errorf("64 callers: %+v", x)
		}
		release(t, all[:]...)
		time.Sleep(3 * time.Second)
		if info, err := s.Inspect(t.Context()); err != nil || len(info.Shared) > 0 {
			t.Errorf("blocks that are not used: %+v, %v", info.Shared, err)
		}
	})
}

// A block that is to be kept for ever is, also where that times blockLingers is more than a
// Duration can be.
func TestBlock_LingersForEver(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, &coord.Options{Handoff: coord.Handoff{Linger: math.MaxInt64}})
		for range 2 {
			release(t, acquire(t, c.Semaphore("k", 10), 1))
			time.Sleep(time.Minute)
		}
		if x := c.Stats().Permits; x.Asked != 1 {
			t.Errorf("%+v", x)
		}
	})
}

// Callers that come in bursts find the blocks of the burst before.
func TestBlock_OutlivesAPause(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		one, two := start(t, a, nil), start(t, a, nil)
		burst := func() {
			var work sync.WaitGroup
			for _, c := range []*coord.Coordinator{one, two} {
				for range 8 {
					work.Go(func() {
						for range 20 {
							p := acquire(t, c.Semaphore("k", 640), 1)
							time.Sleep(5 * time.Millisecond)
							release(t, p)
						}
					})
				}
			}
			work.Wait()
		}
		burst()
		asked := one.Stats().Permits.Asked + two.Stats().Permits.Asked
		for range 20 {
			time.Sleep(200 * time.Millisecond)
			burst()
		}
		if n := one.Stats().Permits.Asked + two.Stats().Permits.Asked - asked; n > 0 {
			t.Errorf("%d blocks were asked for again", n)
		}
	})
}

// The unused permits of a block are given back while callers use the rest, also where the block has
// all permits.
func TestBlock_IsMadeSmaller(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, key string, one, two *coord.Coordinator) {
		before := one.Stats().Permits.Shrunk
		used := partly(t, one.Semaphore(key, 10), 10)
		ctx := used.Context()
		other := acquire(t, two.Semaphore(key, 10), 9)
		if n := one.Stats().Permits.Shrunk - before; n != 1 {
			t.Errorf("%d blocks were made smaller", n)
		}
		if _, err := two.Semaphore(key, 10).TryAcquire(t.Context(), 1); !errors.Is(err, coord.ErrLocked) {
			t.Errorf("the eleventh of ten: %v", err)
		}
		if ctx.Err() != nil {
			t.Error(context.Cause(ctx))
		}
		release(t, used)
		if context.Cause(ctx) != coord.ErrUnlocked {
			t.Error(context.Cause(ctx))
		}
		release(t, other)
	})
}

// Each caller that leaves a block which is wanted gives its permits to those that wait.
func TestBlock_IsMadeSmallerStepByStep(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, key string, one, two *coord.Coordinator) {
		s := one.Semaphore(key, 10)
		release(t, acquire(t, s, 10))
		var used []coord.Permits
		for range 5 {
			used = append(used, acquire(t, s, 2))
		}
		got := make(chan coord.Permits)
		var work sync.WaitGroup
		work.Go(func() {
			defer close(got)
			for range 5 {
				got <- acquire(t, two.Semaphore(key, 10), 2)
			}
		})
		var all []coord.Permits
		for _, p := range used {
			<-p.Wanted()
			release(t, p)
			all = append(all, <-got)
		}
		work.Wait()
		release(t, all...)
	})
}

// A block that is wanted has no permits for callers that come later.
func TestBlock_ThatIsWanted(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		one, two := start(t, a, nil), start(t, a, nil)
		s := one.Semaphore("k", 5)
		used := partly(t, s, 4)
		var order []string
		var work sync.WaitGroup
		work.Go(func() {
			p := acquire(t, two.Semaphore("k", 5), 5)
			order = append(order, "large")
			release(t, p)
		})
		time.Sleep(100 * time.Millisecond)
		if _, err := s.TryAcquire(t.Context(), 1); !errors.Is(err, coord.ErrLocked) {
			t.Errorf("before one that waits: %v", err)
		}
		work.Go(func() {
			p := acquire(t, s, 1)
			order = append(order, "small")
			release(t, p)
		})
		time.Sleep(100 * time.Millisecond)
		if len(order) > 0 {
			t.Error(order)
		}
		release(t, used)
		work.Wait()
		if !slices.Equal(order, []string{"large", "small"}) {
			t.Error(order)
		}
	})
}

// A block that this process keeps is no reason to send its own caller away.
func TestBlock_MakesRoomForOneThatTries(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, key string, one, two *coord.Coordinator) {
		s := one.Semaphore(key, 10)
		used := partly(t, s, 4)
		p, err := s.TryAcquire(t.Context(), 9)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.TryAcquire(t.Context(), 1); !errors.Is(err, coord.ErrLocked) {
			t.Error(err)
		}
		release(t, p, used)
	})
}

// Permits that were released are not taken for those of a later caller, nor lost ones for ones that
// are had.
func TestBlock_Ends(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		s := c.Semaphore("k", 4)
		first := acquire(t, s, 4)
		gone := first.Context()
		release(t, first)
		x, y := acquire(t, s, 1), acquire(t, s, 2)
		for _, p := range []coord.Permits{first, {}} {
			if err := p.Release(); !errors.Is(err, coord.ErrUnlocked) || context.Cause(p.Context()) != coord.ErrUnlocked {
				t.Errorf("released twice: %v", err)
			}
			<-p.Context().Done()
		}
		if context.Cause(gone) != coord.ErrUnlocked || first.N() != 4 || first.Key() != "k" || (coord.Permits{}).Key() != "" || (coord.Permits{}).N() != 0 {
			t.Error(context.Cause(gone))
		}
		live := x.Context()
		info, err := s.Inspect(t.Context())
		if err != nil || len(info.Shared) != 1 || info.Shared[0].Permits != 4 || info.Shared[0].Free != 1 || info.Shared[0].Readers != 2 {
			t.Fatalf("%+v, %v", info.Shared, err)
		}
		if err := s.Break(t.Context(), info.Shared[0].Fence, "stuck"); err != nil {
			t.Fatal(err)
		}
		loss := new(coord.LossError)
		if !errors.As(context.Cause(live), &loss) || loss.Key != "k" || loss.Cause != coord.Broken {
			t.Errorf("%v", context.Cause(live))
		}
		for _, p := range []coord.Permits{x, y} {
			if err := p.Release(); !errors.Is(err, coord.ErrLost) {
				t.Errorf("lost: %v", err)
			}
		}
		<-y.Wanted()
		release(t, acquire(t, s, 4))
	})
}

// A session that ends takes the blocks with it.
func TestBlock_IsLostWithItsSession(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		c, other := start(t, net, nil), start(t, a, nil)
		p := partly(t, c.Semaphore("k", 3), 3)
		ctx := p.Context()
		net.cut()
		<-ctx.Done()
		if err := p.Release(); !errors.Is(err, coord.ErrLost) || !errors.Is(context.Cause(ctx), coord.ErrLost) {
			t.Errorf("%v, %v", err, context.Cause(ctx))
		}
		release(t, acquire(t, other.Semaphore("k", 3), 3))
		synctest.Wait()
	})
}

// A block that is used little gives most of its permits back, though no other process asks for
// them.
func TestBlock_AdaptsToUse(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		s := c.Semaphore("k", 100)
		used := partly(t, s, 80)
		time.Sleep(3 * time.Second)
		info, err := s.Inspect(t.Context())
		if err != nil || len(info.Shared) != 1 || info.Shared[0].Permits != 1 || info.Shared[0].Free != 0 {
			t.Errorf("%+v, %v", info.Shared, err)
		}
		release(t, used)
	})
}

// The callers of a block leave while a smaller hold is on its way, and others have come by then: it
// is given back as a whole.
func TestBlock_IsLeftWhileItIsMadeSmaller(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &faulty{Arbiter: a}
		one, two := start(t, muteArbiter{Arbiter: net}, nil), start(t, muteArbiter{Arbiter: a}, nil)
		used := partly(t, one.Semaphore("k", 8), 8)
		var work sync.WaitGroup
		work.Go(func() { release(t, acquire(t, two.Semaphore("k", 8), 8)) })
		asked := make(chan struct{}, 1)
		net.set(func(op string) fault {
			if op != "lock" {
				return fault{}
			}
			select {
			case asked <- struct{}{}:
			default:
			}
			return fault{answer: 20 * time.Millisecond}
		})
		<-asked // as little of the block is used: the process is not told that another one waits
		release(t, used)
		work.Wait()
	})
}

// A smaller block is asked for again if that was refused, though no caller leaves.
func TestBlock_IsMadeSmallerAfterARefusal(t *testing.T) {
	for name, linger := range map[string]time.Duration{"": 0, "no linger": -1} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				net, o := &faulty{Arbiter: a}, &coord.Options{Handoff: coord.Handoff{Linger: linger}}
				one, two := start(t, net, o), start(t, a, o)
				s := one.Semaphore("k", 8)
				used := []coord.Permits{acquire(t, s, 4), acquire(t, s, 1)} // the second one in a block of two
				var refused atomic.Int32
				net.set(func(op string) fault {
					if op != "lock" {
						return fault{}
					}
					refused.Add(1)
					return fault{err: fallback.ErrRefused}
				})
				var work sync.WaitGroup
				work.Go(func() { release(t, acquire(t, two.Semaphore("k", 8), 3)) })
				time.Sleep(10 * time.Second)
				net.mend()
				work.Wait()
				if n := refused.Load(); n < 3 || n > 100 {
					t.Errorf("refused %d times", n)
				}
				if n := one.Stats().Permits.Shrunk; n != 1 {
					t.Errorf("%d blocks were made smaller", n)
				}
				release(t, used...)
			})
		})
	}
}

func BenchmarkPermits(b *testing.B) {
	c, err := coord.New(b.Context(), fallback.NewMemory(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close(context.Background())
	s, ctx := c.Semaphore("k", 1000), context.Background()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p, err := s.Acquire(ctx, 1)
			if err != nil {
				b.Error(err)
				return
			}
			if err := p.Release(); err != nil {
				b.Error(err)
			}
		}
	})
}
