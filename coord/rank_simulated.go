//go:build simulation || mutants

package coord

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
)

// order checks that mutexes are locked in the order of their ranks.
var order = lockOrder{every: 2048}

// lockOrder watches one lock in so many. While a goroutine holds a watched mutex, each further one
// that it locks must have a higher rank. To find out which goroutine runs takes microseconds, so
// this is done only while a mutex is watched.
type lockOrder struct {
	every    uint32
	count    atomic.Uint32
	watching atomic.Int32 // mutexes that are watched and held

	mu   sync.Mutex        // protects held
	held map[uint64][]rank // by goroutine
}

// locking is called before a mutex is locked. It reports whether the mutex is to be watched.
func (o *lockOrder) locking(r rank) bool {
	if o.watching.Load() > 0 {
		id := goroutine()
		o.mu.Lock()
		for _, outer := range o.held[id] {
			if outer >= r {
				o.mu.Unlock()
				panic(fmt.Sprintf("coord: a mutex of rank %d is locked while one of rank %d is held", r, outer))
			}
		}
		o.mu.Unlock()
	}
	return o.count.Add(1)%o.every == 0
}

// locked is called when a mutex that is to be watched is locked. It returns the goroutine.
func (o *lockOrder) locked(r rank) uint64 {
	id := goroutine()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.held == nil {
		o.held = make(map[uint64][]rank)
	}
	o.held[id] = append(o.held[id], r)
	o.watching.Add(1)
	return id
}

// unlocked is called before a watched mutex is unlocked.
func (o *lockOrder) unlocked(id uint64, r rank) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watching.Add(-1)
	ranks := o.held[id]
	for i := len(ranks) - 1; i >= 0; i-- {
		if ranks[i] == r {
			ranks = append(ranks[:i], ranks[i+1:]...)
			break
		}
	}
	if len(ranks) == 0 {
		delete(o.held, id)
		return
	}
	o.held[id] = ranks
}

// goroutine returns the number of the goroutine that calls it, as its stack trace begins with it.
func goroutine() uint64 {
	var b [64]byte
	words := bytes.Fields(b[:runtime.Stack(b[:], false)])
	id, _ := strconv.ParseUint(string(words[1]), 10, 64)
	return id
}
