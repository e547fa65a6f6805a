package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// go-redis would print errors here that its calls return anyway.
func init() { logging.Disable() }

// A redisServer is the Redis of one run: the user's own, or one inside this process.
type redisServer struct {
	addr  string
	name  string // for the report
	close func()
	own   bool // it ends with the run, and its keys with it
}

// startRedis returns the server at addr if it answers, or an embedded one if addr is empty.
func startRedis(ctx context.Context, addr string) (*redisServer, error) {
	if addr != "" {
		client := newRedisClient(addr, 1)
		defer client.Close()
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		if err := client.Ping(ctx).Err(); err != nil {
			return nil, fmt.Errorf("no Redis at %s: %w", addr, err)
		}
		return &redisServer{addr: addr, name: "Redis at " + addr, close: func() {}}, nil
	}

	mini, err := miniredis.Run()
	if err != nil {
		return nil, fmt.Errorf("embedded Redis: %w", err)
	}
	// Time to live stands still in miniredis unless its owner moves it on.
	done := make(chan struct{})
	var clock sync.WaitGroup
	clock.Go(func() {
		const step = 50 * time.Millisecond
		ticker := time.NewTicker(step)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				mini.FastForward(step)
			case <-done:
				return
			}
		}
	})
	return &redisServer{
		addr: mini.Addr(),
		name: "embedded Redis (miniredis)",
		own:  true,
		close: func() {
			close(done)
			clock.Wait()
			mini.Close()
		},
	}, nil
}

// deleteKeys removes all keys of a run from a server that outlives it.
func (s *redisServer) deleteKeys(ctx context.Context, prefix string) error {
	if s.own {
		return nil
	}
	client := newRedisClient(s.addr, 1)
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	// Holdfast puts its namespace into a hash tag, so a brace comes first.
	keys := client.Scan(ctx, 0, "*"+prefix+"*", 1000).Iterator()
	var batch []string
	for keys.Next(ctx) {
		batch = append(batch, keys.Val())
	}
	err := keys.Err()
	for len(batch) > 0 && err == nil {
		n := min(len(batch), 500)
		err = client.Unlink(ctx, batch[:n]...).Err()
		batch = batch[n:]
	}
	if err != nil {
		return fmt.Errorf("delete keys *%s*: %w", prefix, err)
	}
	return nil
}

// newRedisClient has room for one connection per goroutine, and some for a lock's work in the
// background. So no lock is slow because it waits for a connection.
func newRedisClient(addr string, goroutines int) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: goroutines + 4})
}

// commandCount is a go-redis hook that counts the commands which a client sends, those in pipelines
// too. A script is one command, whatever it calls inside. The commands of the connection pool that
// set up a connection do not count, and a subscription, one per process, is not seen. Counting here
// and not at the server gives the same figure for the embedded one and a real one.
type commandCount struct{ atomic.Int64 }

func (c *commandCount) count(cmds ...redis.Cmder) {
	for _, cmd := range cmds {
		switch cmd.Name() {
		case "hello", "auth", "select", "client":
		default:
			c.Add(1)
		}
	}
}

func (c *commandCount) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *commandCount) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.count(cmd)
		return next(ctx, cmd)
	}
}

func (c *commandCount) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.count(cmds...)
		return next(ctx, cmds)
	}
}
