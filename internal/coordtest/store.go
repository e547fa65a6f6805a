package coordtest

import (
	"bytes"
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// Store is a store of records in memory, for [fallback.NewRecords]. The zero value is ready.
type Store struct {
	mu      sync.Mutex // protects the fields below
	servers int        // that came before this one
	writes  int
	records map[string]fallback.Versioned
}

// FailOver has another server take the place of this one. It has the same records.
func (s *Store) FailOver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.servers++
}

// Empty has another server take the place of this one, which has nothing.
func (s *Store) Empty() {
	s.FailOver()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = nil
}

// Sizes returns how many bytes each record has, by its key.
func (s *Store) Sizes() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]int, len(s.records))
	for key, v := range s.records {
		all[key] = len(v.Value)
	}
	return all
}

// Open implements [fallback.Records].
func (s *Store) Open(ctx context.Context) error { return ctx.Err() }

// Close implements [fallback.Records].
func (s *Store) Close() error { return nil }

func (s *Store) name() string { return "store-" + strconv.Itoa(s.servers) }

// Load implements [fallback.Records].
func (s *Store) Load(ctx context.Context, keys []string) (fallback.Look, error) {
	if err := ctx.Err(); err != nil {
		return fallback.Look{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	look := fallback.Look{Now: time.Now().UnixMilli(), Server: s.name(), Kept: time.Hour}
	for _, k := range keys {
		v := s.records[k]
		v.Value = bytes.Clone(v.Value)
		look.Values = append(look.Values, v)
	}
	return look, nil
}

// Swap implements [fallback.Records].
func (s *Store) Swap(ctx context.Context, server string, changes []fallback.Change) ([]bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records == nil {
		s.records = make(map[string]fallback.Versioned)
	}
	done := make([]bool, len(changes))
	for i, c := range changes {
		if done[i] = server == s.name() && s.records[c.Key].Version == c.Version; done[i] {
			s.writes++
			s.records[c.Key] = fallback.Versioned{
				Version: strconv.Itoa(s.writes), Value: bytes.Clone(c.Value),
			}
		}
	}
	return done, nil
}
