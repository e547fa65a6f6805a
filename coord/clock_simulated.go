//go:build simulation || mutants

package coord

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/wire"
)

func init() { wire.Clocks = true }

// now is the time by this node's clock. It takes long if the node stands still: before the clock is
// read, or after.
func (c *Coordinator) now() time.Time {
	if x := c.opts.Cluster; x != nil {
		if clock, ok := x.host.(wire.Clock); ok {
			return clock.Now()
		}
	}
	return time.Now()
}

func (c *Coordinator) since(t time.Time) time.Duration { return c.now().Sub(t) }
func (c *Coordinator) left(t time.Time) time.Duration  { return t.Sub(c.now()) }

func readHash(key string) uint64 { return hash(key) }

// mutex is a sync.Mutex that a node may hold while it stands still. Goroutines that wait for it are
// idle then, as testing/synctest sees them, so that time goes on. Its place in the order is
// checked.
type mutex[R ranked] struct {
	state   atomic.Uint32 // free, taken or wanted
	watched uint64        // its holder's: the goroutine, if lockOrder watches that; 0: it does not
	locks   uint32        // its holder's: see due

	mu      sync.Mutex // protects waiting
	waiting []chan struct{}
}

const (
	free   = iota
	taken  // and no goroutine waits for it
	wanted // it is handed over to the first that waits
)

func (m *mutex[R]) Lock() {
	var r R
	order.locking(r.rank())
	if !m.state.CompareAndSwap(free, taken) {
		m.wait()
	}
	if order.due(&m.locks) {
		m.watched = order.locked(r.rank())
	}
}

// wait is Lock of a mutex that was not free.
func (m *mutex[R]) wait() {
	m.mu.Lock()
	for !m.state.CompareAndSwap(taken, wanted) && m.state.Load() != wanted {
		if m.state.CompareAndSwap(free, taken) {
			m.mu.Unlock()
			return
		}
	}
	turn := make(chan struct{})
	m.waiting = append(m.waiting, turn)
	m.mu.Unlock()
	<-turn
}

func (m *mutex[R]) TryLock() bool { return m.state.CompareAndSwap(free, taken) }

func (m *mutex[R]) Unlock() {
	if m.watched != 0 {
		var r R
		order.unlocked(m.watched, r.rank())
		m.watched = 0
	}
	if m.state.CompareAndSwap(taken, free) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.waiting) == 0 { // its last waiter has it
		m.state.Store(free)
		return
	}
	close(m.waiting[0])
	m.waiting = m.waiting[1:]
}
