// Package certmagic puts Holdfast's locks into a storage of github.com/caddyserver/certmagic, for
// storages that lock by files with a time limit, or not at all.
package certmagic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/holdfast-go/holdfast/coord"
)

// Storage is a [certmagic.Storage] with other locks: those of the keys "certmagic/" + name.
// Everything else is the wrapped storage's.
type Storage struct {
	certmagic.Storage
	c *coord.Coordinator

	mu   sync.Mutex              // protects held
	held map[string][]coord.Lock // of each Lock without its Unlock; only the last one can be in force, the others were lost
}

var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// Wrap returns s with locks of c.
func Wrap(s certmagic.Storage, c *coord.Coordinator) (*Storage, error) {
	if s == nil || c == nil {
		return nil, errors.New("certmagic: the storage or the coordinator is nil")
	}
	return &Storage{Storage: s, c: c, held: make(map[string][]coord.Lock)}, nil
}

// Lock implements [certmagic.Locker]. It waits until ctx ends. A lock never becomes stale while its
// process lives.
func (s *Storage) Lock(ctx context.Context, name string) error {
	l, err := s.c.Lock(ctx, "certmagic/"+name)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[name] = append(s.held[name], l)
	return nil
}

// TryLock implements [certmagic.TryLocker].
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	l, err := s.c.TryLock(ctx, "certmagic/"+name)
	switch {
	case errors.Is(err, coord.ErrLocked):
		return false, nil
	case err != nil:
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[name] = append(s.held[name], l)
	return true, nil
}

// RenewLockLease implements [certmagic.LockLeaseRenewer], which certmagic calls before each
// attempt. A lock needs no renewal. One that was lost is taken anew, without a wait; if it is not
// to be had, the attempt fails, and certmagic makes another one later.
func (s *Storage) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	s.mu.Lock()
	inForce := slices.ContainsFunc(s.held[name], func(l coord.Lock) bool { return l.Context().Err() == nil })
	s.mu.Unlock()
	if inForce {
		return nil
	}
	l, err := s.c.TryLock(ctx, "certmagic/"+name)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.held[name])
	if n == 0 { // it was unlocked, which would not come again
		_ = l.Unlock()
		return fmt.Errorf("certmagic: renew %q: %w", name, coord.ErrUnlocked)
	}
	s.held[name][n-1] = l
	return nil
}

// Unlock implements [certmagic.Locker]. Its error Is [coord.ErrLost] if the lock was lost. ctx does
// not matter: Unlock does not wait for the network.
func (s *Storage) Unlock(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.held[name]
	switch len(held) {
	case 0:
		return fmt.Errorf("certmagic: unlock %q: %w", name, coord.ErrUnlocked)
	case 1:
		delete(s.held, name)
	default:
		s.held[name] = held[1:]
	}
	return held[0].Unlock()
}
