package redisarbiter_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// panics panics in each command, while it is on.
type panics struct{ on bool }

func (p *panics) DialHook(next redis.DialHook) redis.DialHook { return next }
func (p *panics) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (p *panics) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if p.on {
			panic("a hook")
		}
		return next(ctx, cmd)
	}
}

func TestLock_AHookThatPanicsTakesNoRoomAway(t *testing.T) {
	s := redistest.Start(t)
	c := redis.NewClient(&redis.Options{Addr: s.Addr, PoolSize: 4, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	n := attach(t, c, cold)
	use(t, n)
	var hook panics
	c.AddHook(&hook)
	lock := func(request uint64) (err error, panicked bool) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		defer func() { panicked = recover() != nil }()
		_, err = n.Lock(ctx, fallback.LockRequest{Key: fmt.Sprint("k", request), Me: id("alice", request), Block: 1, Inline: true})
		return err, false
	}
	hook.on = true
	for request := range uint64(4) {
		if _, panicked := lock(request + 1); !panicked {
			t.Fatal("the hook did not panic in the caller's goroutine")
		}
	}
	hook.on = false
	if err, _ := lock(9); err != nil {
		t.Errorf("Lock after calls whose hook panicked: %v", err)
	}
}
