//go:build !simulation && !mutants

package coord

import (
	"hash/maphash"
	"sync"
	"time"
)

// What follows is of the standard library, and costs nothing more: simulations have clocks of their
// own for each node, stop nodes for a while, in the middle of anything, and run again as they ran
// before (clock_simulated.go).

func (*Coordinator) now() time.Time                  { return time.Now() }
func (*Coordinator) since(t time.Time) time.Duration { return time.Since(t) }
func (*Coordinator) left(t time.Time) time.Duration  { return time.Until(t) }

// mutex is a sync.Mutex with a place in the order of all of them.
type mutex[R ranked] = sync.Mutex

// readHash is by what keys are found that this process reads. No key can be chosen so that it has
// the hash of another one.
func readHash(key string) uint64 { return maphash.String(readSeed, key) }

var readSeed = maphash.MakeSeed()
