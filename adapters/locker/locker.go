// Package locker makes a lock of Holdfast a [sync.Locker], for code that takes nothing else.
//
// A sync.Locker cannot fail, cannot be told of a loss, and has no end to its wait. Prefer
// [coord.Coordinator.Do].
package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/coord"
)

// A Locker is the lock of one key, as a [sync.Locker]. Unlike a sync.Mutex it is unlocked by the
// process that locked it. Several Lockers of one key exclude each other.
type Locker struct {
	ctx context.Context
	c   *coord.Coordinator
	key string

	mu   sync.Mutex   // protects held
	held []coord.Lock // of each Lock without its Unlock; only the last one can be in force, the others were lost
}

var _ sync.Locker = (*Locker)(nil)

// New returns the Locker of a key. When ctx ends, Lock panics instead of waiting, for there is no
// other way to say that there is no lock. With [context.Background] it waits until the coordinator
// is closed.
func New(ctx context.Context, c *coord.Coordinator, key string) *Locker {
	return &Locker{ctx: ctx, c: c, key: key}
}

// Lock locks the key. It panics with an error, that of [coord.Coordinator.Lock], if that is not to
// be had.
func (m *Locker) Lock() {
	l, err := m.c.Lock(m.ctx, m.key)
	if err != nil {
		panic(fmt.Errorf("locker: %w", err))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = append(m.held, l)
}

// Unlock unlocks the key. It panics if the key is not locked by this Locker, as that of a
// sync.Mutex does. A lock that was lost is no panic: ask Held before, or the Context. If another
// goroutine has locked since, the key is unlocked when both have called Unlock: it is not known
// which of them calls.
func (m *Locker) Unlock() {
	m.mu.Lock()
	var l coord.Lock
	if len(m.held) > 0 {
		l, m.held = m.held[0], m.held[1:]
	}
	m.mu.Unlock()
	if errors.Is(l.Unlock(), coord.ErrUnlocked) {
		panic("locker: unlock of an unlocked Locker")
	}
}

// Held returns the lock, for its Fence and its Context. It is for the goroutine that has locked.
func (m *Locker) Held() coord.Lock {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.held) == 0 {
		return coord.Lock{}
	}
	return m.held[len(m.held)-1]
}
