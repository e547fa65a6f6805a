package patience

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/migrate"
)

// Locks are those of a coordinator, or both kinds.
type Locks interface {
	Lock(ctx context.Context, key string) (migrate.Held, error)
	TryLock(ctx context.Context, key string) (migrate.Held, error)
}

// New returns the locks of a coordinator.
func New(c *coord.Coordinator) Locks { return source[coord.Lock]{c} }

// Both returns both kinds of locks.
func Both(b *migrate.Both) Locks { return source[*migrate.Lock]{b} }

// OneKey panics if the old keys of a lock are more than one: library sets one.
func OneKey(b *migrate.Both, library string) {
	if keys := b.OldKeys("key"); len(keys) != 1 {
		panic(fmt.Sprintf("%s: the Both has the old keys %q of \"key\", and %s sets one: leave Options.OldKeys out", library, keys, library))
	}
}

// source is a Locks with locks of type L.
type source[L migrate.Held] struct {
	of interface {
		Lock(ctx context.Context, key string) (L, error)
		TryLock(ctx context.Context, key string) (L, error)
	}
}

func (x source[L]) Lock(ctx context.Context, key string) (migrate.Held, error) {
	return x.of.Lock(ctx, key)
}

func (x source[L]) TryLock(ctx context.Context, key string) (migrate.Held, error) {
	return x.of.TryLock(ctx, key)
}
