package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// A KeysFunc names the resources that a request is about, each as a [KeyFunc] does, and with the
// same errors. [Keys] makes one of KeyFuncs. It may name a key twice, and 100 different ones at
// most; a request with none passes.
type KeysFunc func(r *http.Request) ([]string, error)

// maxKeys is the limit for a request's keys: a client may have named them.
const maxKeys = 100

// Keys is a [KeysFunc] of several KeyFuncs: Keys(Key("account", Query("from")), Key("account",
// Query("to"))). A key that is [ErrSkip] is left out. Keys panics if one of the functions is nil.
func Keys(keys ...KeyFunc) KeysFunc {
	for _, k := range keys {
		if k == nil {
			panic("middleware: Keys with a KeyFunc that is nil")
		}
	}
	return func(r *http.Request) ([]string, error) {
		all := make([]string, 0, len(keys))
		for _, k := range keys {
			key, err := k(r)
			if errors.Is(err, ErrSkip) {
				continue
			}
			if err != nil {
				return nil, err
			}
			all = append(all, key)
		}
		return all, nil
	}
}

// of returns the keys of a request, each once.
func (f KeysFunc) of(r *http.Request) ([]string, error) {
	all, err := f(r)
	if err != nil {
		return nil, err
	}
	once := make([]string, 0, min(len(all), maxKeys))
	for _, key := range all {
		if _, err := checked("", key); err != nil {
			return nil, err
		}
		if slices.Contains(once, key) {
			continue
		}
		if len(once) == maxKeys {
			return nil, &KeyError{Reason: fmt.Sprintf("is one of more than %d", maxKeys)}
		}
		once = append(once, key)
	}
	return once, nil
}

// SerializeAll is [Serialize] for requests that are about several resources, such as a transfer
// between two accounts: a handler runs with all of its keys locked, and requests that have a key in
// common run one after another. It locks the keys as [coord.Coordinator.LockAll] does: in one order
// in all processes, so that no two requests wait for each other in a circle, in whatever order
// their keys are named. Requests in Serialize with one of the keys take their turns with them.
//
// [Locks] returns the locks, and [coord.Locks.Of] the one of a key, for its token. The handler's
// context ends when one of them is lost. A key that a handler further out has locked is not locked
// again; the others are, and the order of nesting counts for them as in Serialize.
// SerializeOptions.MaxWaiters is for each key, and Wait for all together. With [Route] around it,
// let Route have one of the keys.
//
// It panics if c or keys is nil, or the options make no sense: FenceHeader is for one key.
func SerializeAll(c *coord.Coordinator, keys KeysFunc, opts *SerializeOptions) func(http.Handler) http.Handler {
	if c == nil || keys == nil {
		panic("middleware: SerializeAll needs a coordinator and a KeysFunc")
	}
	s := newSerializer(c, opts)
	if s.opts.FenceHeader != "" {
		panic("middleware: SerializeOptions.FenceHeader is for the token of one key: leave it out with SerializeAll, and let the handler send tokens")
	}
	if len(s.opts.Shared) > 0 {
		panic("middleware: SerializeOptions.Shared is not for SerializeAll")
	}
	return func(next http.Handler) http.Handler {
		next = keepLocked("SerializeAll", next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serveAll(keys, next, w, r) })
	}
}

func (s *serializer) serveAll(f KeysFunc, next http.Handler, w http.ResponseWriter, r *http.Request) {
	if !s.opts.applies(r.Method) {
		next.ServeHTTP(w, r)
		return
	}
	keys, err := f.of(r)
	if err != nil && !errors.Is(err, ErrSkip) {
		s.refuse(w, r, keyProblem(err))
		return
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return heldBy(r.Context(), s.c, key) != nil })
	if len(keys) == 0 {
		next.ServeHTTP(w, r)
		return
	}
	came := r
	r = readAhead(w, r, s.opts.ReadAhead)
	if a, ok := r.Body.(*ahead); ok && a.ended != nil {
		defer a.hangUp(w)
	}
	for i, key := range keys {
		if !s.queue.Enter(key, s.opts.MaxWaiters) {
			s.leave(keys[:i])
			s.crowded(w, r)
			return
		}
	}
	since := time.Now()
	granted, err := s.lockAll(r.Context(), keys)
	if err != nil {
		s.leave(keys)
		s.failed(w, r, err, since)
		return
	}
	for _, key := range keys {
		s.queue.Begin(key)
	}
	locks, ctx := make([]*held, len(keys)), r.Context()
	for i, key := range slices.Backward(keys) {
		locks[i] = &held{Context: ctx, c: s.c, lock: granted.Of(key), holder: s}
		ctx = locks[i]
	}
	s.run(next, w, r, came, locks...)
}

func (s *serializer) leave(keys []string) {
	for _, key := range keys {
		s.queue.Leave(key)
	}
}

// lockAll waits for the request's turn.
func (s *serializer) lockAll(ctx context.Context, keys []string) (coord.Locks, error) {
	if s.opts.Wait < 0 {
		return s.c.TryLockAll(ctx, keys...)
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.Wait)
	defer cancel()
	return s.c.LockAll(ctx, keys...)
}
