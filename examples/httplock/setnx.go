package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	randv2 "math/rand/v2"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"
)

// setnx is the lock that most services write first: each request says SET key token NX PX ttl,
// again and again until that succeeds. In the end it deletes the key by a script if its token is
// still there. There is no queue and no fencing token, and nothing renews it: a handler that is
// slower than the ttl shares the order unawares.
type setnx struct {
	client redis.UniversalClient
	prefix string
	ttl    time.Duration
	wait   time.Duration // for the lock, at most
}

const setnxPoll = 10 * time.Millisecond // on average; each pause is between half of it and half more

var errTaken = errors.New("somebody else has the lock")

// KEYS[1]: the lock. ARGV[1]: the holder's token. Answer: 1 if the lock was the holder's, else 0.
var setnxRelease = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
	return redis.call('DEL', KEYS[1])
end
return 0`)

// around runs requests for the same order one after another.
func (s *setnx) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, token := s.prefix+":"+r.PathValue("id"), rand.Text()
		err := s.lock(r.Context(), key, token)
		if !errors.Is(err, errTaken) {
			// Also after an error, which may hide that the lock was granted; and also if the client
			// has gone meanwhile.
			defer s.unlock(context.WithoutCancel(r.Context()), key, token)
		}
		switch {
		case err == nil:
			next.ServeHTTP(w, r)
		case errors.Is(err, errTaken):
			http.Error(w, err.Error(), http.StatusLocked)
		default:
			http.Error(w, fmt.Sprintf("lock: %v", err), http.StatusServiceUnavailable)
		}
	})
}

// lock returns errTaken if others have had the lock all the time, and it is not ours for sure.
func (s *setnx) lock(ctx context.Context, key, token string) error {
	for end := time.Now().Add(s.wait); ; {
		err := s.client.Do(ctx, "SET", key, token, "NX", "PX", s.ttl.Milliseconds()).Err()
		if !errors.Is(err, redis.Nil) { // which says that another one has it
			return err
		}
		pause := setnxPoll/2 + randv2.N(setnxPoll)
		if time.Until(end) < pause {
			return errTaken
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return errTaken
		}
	}
}

// unlock has no caller to tell of an error. If the lock stays, it expires; if it has expired, the
// referee sees the consequences.
func (s *setnx) unlock(ctx context.Context, key, token string) {
	_ = setnxRelease.Run(ctx, s.client, []string{key}, token).Err()
}
