package subjects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/coord"
)

// modeWay is one way to do some jobs: which is in the variant's in and more.
type modeWay struct {
	rivals.Variant
	floor bool // beside what is alone: it locks nothing
	reads bool // its locks are for reading
	open  func(p modePlace) (*openMode, error)

	// openRW is open of a lock for readers and writers, which jobs of both kinds use.
	openRW func(p modePlace) (_ readerWriter, shut func() error, err error)
}

// modeWays has ours first, of each job.
var modeWays = slices.Concat(readWays, mixedWays, rwRivals, permitsWays)

var readWays = []modeWay{
	{
		Variant: rivals.Variant{Name: "Holdfast RLock, own key", How: "RLock and Unlock of a key that the node owns", In: "read"},
		reads:   true,
		open:    func(p modePlace) (*openMode, error) { return openPairs(p, true, readPairs) },
	},
	{
		Variant: rivals.Variant{Name: "Holdfast RLock, another's key", How: "the same on a node that does not own the key", In: "read"},
		reads:   true,
		open:    func(p modePlace) (*openMode, error) { return openPairs(p, false, readPairs) },
	},
	{
		Variant: rivals.Variant{Name: "Holdfast Lock, own key", How: "Lock and Unlock by as many goroutines: they exclude each other", In: "read"},
		open:    func(p modePlace) (*openMode, error) { return openPairs(p, true, lockPairs) },
	},
	{
		Variant: rivals.Variant{Name: "sync.RWMutex", How: "RLock and RUnlock", In: "read", Alone: true},
		open: func(modePlace) (*openMode, error) {
			var mu sync.RWMutex
			return &openMode{loop: func(_ context.Context, n int) error {
				for range n {
					mu.RLock()
					mu.RUnlock() //nolint:staticcheck // the pair is what is measured
				}
				return nil
			}}, nil
		},
	},
	{
		Variant: rivals.Variant{Name: "the clock", How: "time.Since: processors share nothing in it", In: "read", Alone: true},
		open: func(modePlace) (*openMode, error) {
			began := time.Now()
			return &openMode{loop: func(_ context.Context, n int) error {
				for range n {
					_ = time.Since(began)
				}
				return nil
			}}, nil
		},
	},
}

// permitsWays are those of the job "permits".
var permitsWays = []modeWay{
	{
		Variant: rivals.Variant{Name: "Holdfast Semaphore", How: "Acquire and Release of one permit of a semaphore of all processes", In: "permits"},
		open: func(p modePlace) (*openMode, error) {
			c, err := p.cluster()
			if err != nil {
				return nil, err
			}
			s := c.Semaphore("renderers", permitsOf(p.job))
			return limited(p, func(ctx context.Context) (coord.Permits, error) { return s.Acquire(ctx, 1) }, coord.Permits.Release), nil
		},
	},
	redissonPermits,
	{
		Variant: rivals.Variant{Name: "no limit", How: "the same sections by as many processes", In: "permits"},
		floor:   true,
		open:    func(p modePlace) (*openMode, error) { return unlimited(p), nil },
	},
	{
		Variant: rivals.Variant{
			Name: "x/sync/semaphore", How: "golang.org/x/sync/semaphore in one process, with as many callers", In: "permits", Alone: true,
		},
		open: func(p modePlace) (*openMode, error) {
			s := semaphore.NewWeighted(int64(permitsOf(p.job)))
			return limited(p, func(ctx context.Context) (none, error) { return none{}, s.Acquire(ctx, 1) }, func(none) error {
				s.Release(1)
				return nil
			}), nil
		},
	},
	{
		Variant: rivals.Variant{Name: "no limit, one process", How: "the same sections by one process, with as many callers", In: "permits", Alone: true},
		floor:   true,
		open:    func(p modePlace) (*openMode, error) { return unlimited(p), nil },
	},
}

// permitsOf is a limit that does not bind.
func permitsOf(j modeJob) int { return 10 * j.Processes * j.Goroutines }

// none is what a way has that gives nothing to release.
type none struct{}

func unlimited(p modePlace) *openMode {
	return limited(p, func(context.Context) (none, error) { return none{}, nil }, func(none) error { return nil })
}

// limited makes sections of two round trips to Redis, each between acquire and release.
func limited[T any](p modePlace, acquire func(context.Context) (T, error), release func(T) error) *openMode {
	return &openMode{loop: func(ctx context.Context, n int) error {
		for range n {
			permit, err := acquire(ctx)
			if err != nil {
				return err
			}
			if err = p.Client.Incr(ctx, "{bench}:sections").Err(); err == nil {
				err = p.Client.Incr(ctx, "{bench}:sections").Err()
			}
			if err := errors.Join(err, release(permit)); err != nil {
				return err
			}
		}
		return nil
	}}
}

func findWay(name string) (*modeWay, error) {
	for i := range modeWays {
		if modeWays[i].Name == name {
			return &modeWays[i], nil
		}
	}
	return nil, fmt.Errorf("no way %q", name)
}

// openPairs finds a key that the node owns, or one that it does not.
func openPairs(p modePlace, own bool, loop func(context.Context, *coord.Coordinator, string, int) error) (*openMode, error) {
	c, err := p.cluster()
	if err != nil {
		return nil, err
	}
	for i := range 1000 * partitions {
		key := "catalogue-" + strconv.Itoa(i)
		if owner, ok := c.Owner(key); ok && owner.Self == own {
			return &openMode{loop: func(ctx context.Context, n int) error { return loop(ctx, c, key, n) }}, nil
		}
	}
	return nil, fmt.Errorf("no key is owned by the right node of %d", len(c.Nodes()))
}

func readPairs(ctx context.Context, c *coord.Coordinator, key string, n int) error {
	for range n {
		l, err := c.RLock(ctx, key)
		if err != nil {
			return err
		}
		if err := l.Unlock(); err != nil {
			return err
		}
	}
	return nil
}

func lockPairs(ctx context.Context, c *coord.Coordinator, key string, n int) error {
	for range n {
		if err := pair(ctx, c, key); err != nil {
			return err
		}
	}
	return nil
}
