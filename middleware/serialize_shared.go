package middleware

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// shares reports whether requests of the method lock their key for reading only.
func (o *SerializeOptions) shares(method string) bool {
	if method == "" {
		method = http.MethodGet
	}
	return slices.Contains(o.Shared, method)
}

// serveShared is serve for a request that runs beside others of its kind.
func (s *serializer) serveShared(next http.Handler, w http.ResponseWriter, r *http.Request) {
	key, err := s.key.of(r)
	if errors.Is(err, ErrSkip) {
		next.ServeHTTP(w, r)
		return
	}
	if err != nil {
		s.refuse(w, r, keyProblem(err))
		return
	}
	if outer := heldBy(r.Context(), s.c, key); outer != nil { // it writes
		s.announce(w, outer.lock.Fence())
		next.ServeHTTP(w, r)
		return
	}
	if !s.queue.Enter(key, s.opts.MaxWaiters) {
		s.crowded(w, r)
		return
	}
	since := time.Now()
	l, err := s.rlock(r.Context(), key)
	s.queue.Leave(key)
	if errors.Is(err, coord.ErrHeld) && reads(r.Context(), s.c, key) {
		next.ServeHTTP(w, r)
		return
	}
	if err != nil {
		s.failed(w, r, err, since)
		return
	}
	inner := r.WithContext(&until{Context: r.Context(), of: l, c: s.c})
	defer func() {
		keepForm(r, inner)
		if err := l.Unlock(); errors.Is(err, coord.ErrLost) {
			s.logger.Warn("holdfast: the lock of a request was lost while its handler ran", "key", key, "fence", l.Fence(), "error", err)
		}
	}()
	s.announce(w, l.Fence())
	next.ServeHTTP(w, inner)
}

// reads reports whether a handler further out reads the key, however far.
func reads(ctx context.Context, c *coord.Coordinator, key string) bool {
	for u := readBy(ctx); u != nil; u = readBy(u.Context) {
		if l, _ := u.of.(coord.ReadLock); u.c == c && l.Key() == key {
			return true
		}
	}
	return false
}

func (s *serializer) rlock(ctx context.Context, key string) (coord.ReadLock, error) {
	if s.opts.Wait < 0 {
		return s.c.TryRLock(ctx, key)
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.Wait)
	defer cancel()
	return s.c.RLock(ctx, key)
}
