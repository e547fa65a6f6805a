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

// lockOrder watches one lock in so many, of each mutex. While a goroutine holds a watched mutex,
// each further one that it locks must have a higher rank. To find out which goroutine runs takes
// microseconds, so this is done only while a mutex is watched.
type lockOrder struct {
	every    uint32
	mutexes  atomic.Uint32 // that there have been
	watching atomic.Int32  // mutexes that are watched and held

	mu   sync.Mutex        // protects held
	held map[uint64][]rank // by goroutine
}

// locking is called before a mutex is locked.
func (o *lockOrder) locking(r rank) {
	if o.watching.Load() == 0 {
		return
	}
	id := goroutine()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, outer := range o.held[id] {
		if outer >= r {
			panic(fmt.Sprintf("coord: a mutex of rank %d is locked while one of rank %d is held", r, outer))
		}
	}
}

// due reports whether a lock is to be watched. locks has the mutex's locks so far. They are counted
// from elsewhere for each, so that those of few locks are watched as often as others.
func (o *lockOrder) due(locks *uint32) bool {
	if *locks == 0 {
		*locks = o.mutexes.Add(1) * 2654435769 >> 16 // Fibonacci hashing: spread evenly
	}
	*locks++
	return *locks%o.every == 0
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
