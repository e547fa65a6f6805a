//go:build simulation || mutants

package coord

import (
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/wire"
)

func init() { wire.Clocks = true }

// checked tells whether transitions are compared with the tables of legal ones.
const checked = true

// now is the time by this node's clock. It takes long if the node stands still: before the clock is read, or after.
func (c *Coordinator) now() time.Time {
	if x := c.opts.Cluster; x != nil {
		if clock, ok := x.host.(wire.Clock); ok {
			return clock.Now()
		}
	}
	return time.Now()
}

func (c *Coordinator) since(t time.Time) time.Duration { return c.now().Sub(t) }
func (c *Coordinator) until(t time.Time) time.Duration { return t.Sub(c.now()) }

// mutex is a sync.Mutex that a node may hold while it stands still: whoever waits for it is idle then, as testing/synctest
// sees it, so that time goes on.
type mutex struct {
	mu      sync.Mutex // protects what follows
	locked  bool
	waiting []chan struct{} // it is handed over to the first
}

func (m *mutex) Lock() {
	m.mu.Lock()
	if !m.locked {
		m.locked = true
		m.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	m.waiting = append(m.waiting, turn)
	m.mu.Unlock()
	<-turn
}

func (m *mutex) TryLock() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locked {
		return false
	}
	m.locked = true
	return true
}

func (m *mutex) Unlock() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.waiting) == 0 {
		m.locked = false
		return
	}
	close(m.waiting[0])
	m.waiting = m.waiting[1:]
}
