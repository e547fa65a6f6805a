package fence

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/holdfast-go/holdfast/coord"
)

// A Memory keeps the highest token of each key in this process, for a resource that lives in this
// process as well: another process, or the next one, does not know them. Keys stay. The zero Memory
// is empty. Its methods are safe for concurrent use.
type Memory struct {
	mu   sync.Mutex // protects keys
	keys map[string]*seen
}

// seen is the state of a key. busy has room for one: the call that runs.
type seen struct {
	busy  chan struct{}
	token coord.Fence
}

// Do calls fn, unless a higher token of the key was seen. While fn runs, no other fn of the key
// does. It returns a [*StaleError], which Is [ErrStale]; ctx's error if that ends before it is fn's
// turn; or fn's.
func (m *Memory) Do(ctx context.Context, key string, token coord.Fence, fn func() error) error {
	if err := check(key, token); err != nil {
		return err
	}
	m.mu.Lock()
	s := m.keys[key]
	if s == nil {
		if m.keys == nil {
			m.keys = make(map[string]*seen)
		}
		s = &seen{busy: make(chan struct{}, 1)}
		m.keys[key] = s
	}
	m.mu.Unlock()
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := Judge(key, token, s.token); err != nil {
		return err
	}
	s.token = token
	return fn()
}

// Handler lets a request through if no higher token of its key was seen, and one after another. A
// stale one is answered with 412 (Precondition Failed). Requests without a token are treated as by
// [Require]. A client that reads, decides and writes sends its token with the reading as well: see
// [Transport].
func (m *Memory) Handler(key func(r *http.Request) string, next http.Handler) http.Handler {
	return Require(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := FromContext(r.Context())
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		served := false
		err := m.Do(r.Context(), key(r), token, func() error {
			served = true
			next.ServeHTTP(w, r)
			return nil
		})
		if err != nil && !served {
			WriteError(w, err)
		}
	}))
}

// WriteError answers a request with 412 (Precondition Failed) if the error Is [ErrStale], with the
// highest token in [Header]; and with 503 if not.
func WriteError(w http.ResponseWriter, err error) {
	var stale *StaleError
	if errors.As(err, &stale) {
		w.Header().Set(Header, stale.Seen.String())
	}
	if errors.Is(err, ErrStale) {
		http.Error(w, "a later holder of the lock was here", http.StatusPreconditionFailed)
		return
	}
	http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
}
