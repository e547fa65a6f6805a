package main

import (
	"context"
	"crypto/rand"
	"errors"
	randv2 "math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
)

// setnx is the lock that most teams write first: SET key token NX PX ttl, again and again until it
// succeeds, and a script that deletes the key if the token is still there. It has no queue and no
// fencing token, and nothing renews it: a holder that is slower than the ttl shares it unawares.
type setnx struct {
	client redis.UniversalClient
	prefix string
	ttl    time.Duration
}

const setnxPoll = 10 * time.Millisecond // on average; each pause is between half of it and half more

var errLockExpired = errors.New("lock expired while it was held")

// KEYS[1]: the lock. ARGV[1]: the holder's token. Answer: 1 if the lock was the holder's, else 0.
var setnxRelease = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
	return redis.call('DEL', KEYS[1])
end
return 0`)

func (s *setnx) Lock(ctx context.Context, key string) (hold, error) {
	key = s.prefix + ":" + key
	token := rand.Text()
	for {
		err := s.client.Do(ctx, "SET", key, token, "NX", "PX", s.ttl.Milliseconds()).Err()
		if ctx.Err() != nil {
			// The answer may be lost, the lock may be ours: give it back on a context that lives.
			_ = s.release(context.WithoutCancel(ctx), key, token) // if it fails, the ttl does it
			return nil, ctx.Err()
		}
		if err == nil {
			return &setnxHold{lock: s, ctx: context.WithoutCancel(ctx), key: key, token: token}, nil
		}
		if !errors.Is(err, redis.Nil) { // which says that another one has it
			return nil, err
		}
		select {
		case <-time.After(setnxPoll/2 + randv2.N(setnxPoll)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *setnx) Close(context.Context) error { return nil }

func (s *setnx) release(ctx context.Context, key, token string) error {
	n, err := setnxRelease.Run(ctx, s.client, []string{key}, token).Int()
	if err == nil && n == 0 {
		err = errLockExpired
	}
	return err
}

type setnxHold struct {
	lock       *setnx
	ctx        context.Context
	key, token string
}

func (h *setnxHold) Fence() coord.Fence       { return 0 }
func (h *setnxHold) Context() context.Context { return h.ctx }
func (h *setnxHold) Unlock() error            { return h.lock.release(h.ctx, h.key, h.token) }
