package subjects

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/coord"
)

// modeWay is one way to do some jobs: which is in the variant's in and more.
type modeWay struct {
	rivals.Variant
	floor bool // beside what is alone: it locks nothing
	reads bool // its locks are for reading
	open  func(p modePlace) (*openMode, error)
}

var modeWays = []modeWay{
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
