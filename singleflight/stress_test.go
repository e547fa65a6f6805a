package singleflight_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/singleflight"
)

// skies watches the flights of each key from inside their fn. Of one key, at most one
// context may be live at a time: that of the flight that is not dying.
type skies struct {
	t  *testing.T
	mu sync.Mutex
	in map[int]map[context.Context]bool // by key, the contexts of the fns that run
}

func (s *skies) enter(key int, ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range s.in[key] {
		// In this order: ctx live after other was live means both at once, as ctx had
		// begun before. A fn may enter when its own flight is dying already.
		if other.Err() == nil && ctx.Err() == nil {
			s.t.Errorf("key %d: two flights, neither of them dying", key)
		}
	}
	if s.in[key] == nil {
		s.in[key] = make(map[context.Context]bool)
	}
	s.in[key][ctx] = true
}

func (s *skies) exit(key int, ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.in[key], ctx)
}

// fly is some work on key. It returns the key if it gets to the end of it.
func (s *skies) fly(key int) func(context.Context) (int, error) {
	steps, deaf := rand.IntN(20), rand.IntN(4) == 0
	return func(ctx context.Context) (int, error) {
		s.enter(key, ctx)
		defer s.exit(key, ctx)
		for range steps {
			if ctx.Err() != nil && !deaf {
				break
			}
			runtime.Gosched()
		}
		return key, ctx.Err()
	}
}

func TestStress(t *testing.T) {
	const workers, rounds, keys = 32, 300, 3
	errEnd := errors.New("the caller's end")
	var g singleflight.Group[int, int]
	s := &skies{t: t, in: make(map[int]map[context.Context]bool)}
	var wg sync.WaitGroup

	live := func(how string, key, v int, err error) {
		if v != key || err != nil {
			t.Errorf("%s, live, key %d: %v, %v", how, key, v, err)
		}
	}
	worker := func() {
		for range rounds {
			key := rand.IntN(keys)
			switch rand.IntN(4) {
			case 0: // stays
				v, _, err := g.Do(t.Context(), key, s.fly(key))
				live("Do", key, v, err)
			case 1: // may end before, during or after the flight
				ctx, cancel := context.WithCancelCause(t.Context())
				pause := rand.IntN(10)
				wg.Go(func() {
					for range pause {
						runtime.Gosched()
					}
					cancel(errEnd)
				})
				v, _, err := g.Do(ctx, key, s.fly(key))
				if err == nil {
					live("Do", key, v, err)
				} else if !errors.Is(err, errEnd) || !errors.Is(err, context.Canceled) {
					t.Errorf("Do, ended, key %d: %v", key, err)
				}
			case 2: // leaves, more than once, at the same time
				m := g.Join(t.Context(), key, s.fly(key))
				for range rand.IntN(10) {
					runtime.Gosched()
				}
				wg.Go(m.Leave)
				m.Leave()
				if rand.IntN(2) == 0 {
					<-m.Done()
				}
			case 3: // stays, and leaves in the end
				m := g.Join(t.Context(), key, s.fly(key))
				v, err := m.Result()
				m.Leave()
				live("Join", key, v, err)
			}
		}
	}
	for range workers {
		wg.Go(worker)
	}
	wg.Wait()
	if n := g.Len(); n != 0 {
		t.Errorf("%d flights left behind", n)
	}
}
