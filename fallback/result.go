package fallback

import (
	"context"
	"time"
)

// A ResultStore is a [Namespace] that keeps small values beside the holds: one caller computes a
// value under a key's lock, for the others that wait for it. It is optional, and found by a type
// assertion on a Namespace.
//
// A result is a cache entry, and is treated as one: a failover may lose it, or bring back an
// earlier one. Grace does not apply to it. Results have nothing to do with holds of the same key:
// neither operation looks at them.
//
// Contract of both operations: each is atomic, touches one slot, is one round trip that blocks
// until ctx ends at most, and may be retried after a lost reply. Keys are any bytes, and a key
// always comes with the same partition.
type ResultStore interface {
	// LoadResult reads the result kept for the key. Its Fence is 0 if there is none.
	LoadResult(ctx context.Context, p uint32, key string) (Result, error)

	// SaveResult keeps the value for ttl from now, by the store's clock, in the place of an earlier
	// one. If a result with a higher fence is kept, nothing is changed: the maker of this one has
	// lost the key since. The Verdict is Granted if the value was stored, Stale if not. fence is
	// not 0; ttl is at least a millisecond.
	//
	// Once a result has expired its fence is forgotten with it.
	SaveResult(ctx context.Context, p uint32, key string, value []byte, fence uint64, ttl time.Duration) (Verdict, error)
}

// A Result is a value in a [ResultStore].
type Result struct {
	Value []byte        // the caller's own copy
	Fence uint64        // the token of the lock under which it was made; 0: there is no result
	Age   time.Duration // since it was saved, by the store's clock
}
