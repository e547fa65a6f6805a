//go:build !simulation && !mutants

package coord

import (
	"hash/maphash"
	"sync"
	"time"
)

// The clock, the mutex and the hash below are the standard library's, and cost nothing more.
// Simulations have a clock for each node, and stop nodes for a while, in the middle of anything
// (clock_simulated.go). They run again as they ran before.

func (*Coordinator) now() time.Time                  { return time.Now() }
func (*Coordinator) since(t time.Time) time.Duration { return time.Since(t) }
func (*Coordinator) left(t time.Time) time.Duration  { return time.Until(t) }

// mutex is a sync.Mutex with a place in the order of all of them.
type mutex[R ranked] = sync.Mutex

// readHash returns the hash that finds the keys that this process reads. No key can be chosen so
// that it has the hash of another one.
func readHash(key string) uint64 { return maphash.String(readSeed, key) }

var readSeed = maphash.MakeSeed()
