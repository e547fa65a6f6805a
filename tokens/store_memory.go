package tokens

import (
	"context"
	"sync"
)

// MemoryStore is a [Store] in this process: for tests, and for programs of one process that can log
// in again.
type MemoryStore struct {
	mu      sync.Mutex // protects records
	records map[string]Record
}

// NewMemoryStore returns an empty store.
func NewMemoryStore() *MemoryStore { return &MemoryStore{records: make(map[string]Record)} }

// Load implements [Store].
func (s *MemoryStore) Load(ctx context.Context, account string) (Record, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.records[account]
	if !ok {
		return Record{}, ErrNoAccount
	}
	return r, nil
}

// Save implements [Store].
func (s *MemoryStore) Save(ctx context.Context, account string, r Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records[account].Compare(r) > 0 {
		return ErrSuperseded
	}
	s.records[account] = r
	return nil
}
