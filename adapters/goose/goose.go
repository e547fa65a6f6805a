// Package goose is a locker for github.com/pressly/goose/v3, for databases without usable session
// locks: behind a pooler such as pgbouncer, or without any, as SQLite and ClickHouse.
//
// goose tells no migration that its lock was lost. [coord.Coordinator.Do] around Provider.Up does:
// its context ends then, and with it the migration that runs.
package goose

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/pressly/goose/v3/lock"

	"github.com/holdfast-go/holdfast/coord"
)

// Locker is a [lock.Locker], for goose.WithLocker. One Locker serves one provider.
type Locker struct {
	c   *coord.Coordinator
	key string

	mu   sync.Mutex   // protects held
	held []coord.Lock // of each Lock without its Unlock; only the last one can be in force, the others were lost
}

var _ lock.Locker = (*Locker)(nil)

// NewLocker returns the Locker of a key, such as "migrate/orders": one per database.
func NewLocker(c *coord.Coordinator, key string) (*Locker, error) {
	if c == nil {
		return nil, errors.New("goose: the coordinator is nil")
	}
	if key == "" || len(key) > coord.MaxKey {
		return nil, coord.ErrInvalidKey
	}
	return &Locker{c: c, key: key}, nil
}

// Lock implements [lock.Locker]. It waits until ctx ends: that of Provider.Up.
func (l *Locker) Lock(ctx context.Context, _ *sql.DB) error {
	held, err := l.c.Lock(ctx, l.key)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = append(l.held, held)
	return nil
}

// Unlock implements [lock.Locker]. Its error Is [coord.ErrLost] if the lock was lost, and with it
// that of Provider.Up: another process may have migrated at the same time.
func (l *Locker) Unlock(context.Context, *sql.DB) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.held) == 0 {
		return coord.ErrUnlocked
	}
	held := l.held[0] // A lock that was lost may have another one after it, which this call is not for.
	l.held = l.held[1:]
	return held.Unlock()
}
