// Package certmagic puts Holdfast's locks into a storage of github.com/caddyserver/certmagic, for storages
// that lock by files with a time limit, or not at all.
package certmagic

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/caddyserver/certmagic"

	"github.com/holdfast-go/holdfast/coord"
)

// Storage is a [certmagic.Storage] with other locks: those of the keys "certmagic/" + name. Everything
// else is the wrapped storage's.
type Storage struct {
	certmagic.Storage
	c *coord.Coordinator

	mu   sync.Mutex // protects held
	held map[string]coord.Lock
}

var (
	_ certmagic.Storage   = (*Storage)(nil)
	_ certmagic.TryLocker = (*Storage)(nil)
)

// Wrap returns s with locks of c.
func Wrap(s certmagic.Storage, c *coord.Coordinator) (*Storage, error) {
	if s == nil || c == nil {
		return nil, errors.New("certmagic: the storage or the coordinator is nil")
	}
	return &Storage{Storage: s, c: c, held: make(map[string]coord.Lock)}, nil
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
	s.held[name] = l
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
	s.held[name] = l
	return true, nil
}

// Unlock implements [certmagic.Locker]. Its error Is [coord.ErrLost] if the lock was lost. ctx does not
// matter: Unlock does not wait for the network.
func (s *Storage) Unlock(_ context.Context, name string) error {
	s.mu.Lock()
	l, ok := s.held[name]
	delete(s.held, name)
	s.mu.Unlock()
	if !ok {
		return fmt.Errorf("certmagic: unlock %q: %w", name, coord.ErrUnlocked)
	}
	return l.Unlock()
}
