//go:build !simulation && !mutants

package coord

import (
	"sync"
	"time"
)

// What follows is package time and package sync, and costs nothing more: simulations have clocks of their own for each node,
// and stop nodes for a while, in the middle of anything (clock_simulated.go).

func (*Coordinator) now() time.Time                  { return time.Now() }
func (*Coordinator) since(t time.Time) time.Duration { return time.Since(t) }
func (*Coordinator) left(t time.Time) time.Duration  { return time.Until(t) }

// mutex is a sync.Mutex with a place in the order of all of them.
type mutex[R ranked] = sync.Mutex
