//go:build simulation || mutants

package coord

import (
	"sync"
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
	mu      sync.Mutex // protects the fields below
	locked  bool
	waiting []chan struct{} // it is handed over to the first
	watched uint64          // the goroutine that holds it, if lockOrder watches that; 0: it does not
}

func (m *mutex[R]) Lock() {
	var r R
	watch := order.locking(r.rank())
	m.mu.Lock()
	if m.locked {
		turn := make(chan struct{})
		m.waiting = append(m.waiting, turn)
		m.mu.Unlock()
		<-turn
		m.mu.Lock()
	}
	m.locked = true
	if watch {
		m.watched = order.locked(r.rank())
	}
	m.mu.Unlock()
}

func (m *mutex[R]) TryLock() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locked {
		return false
	}
	m.locked = true
	return true
}

func (m *mutex[R]) Unlock() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.watched != 0 {
		var r R
		order.unlocked(m.watched, r.rank())
		m.watched = 0
	}
	if len(m.waiting) == 0 {
		m.locked = false
		return
	}
	close(m.waiting[0])
	m.waiting = m.waiting[1:]
}
