package main

import (
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// go-redis would print errors here that its calls return anyway.
func init() { logging.Disable() }

// startRedis starts a Redis server inside this process, and returns its address and a function that
// ends it.
func startRedis() (addr string, end func(), err error) {
	mini, err := miniredis.Run()
	if err != nil {
		return "", nil, err
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
	return mini.Addr(), func() {
		close(done)
		clock.Wait()
		mini.Close()
	}, nil
}

func newRedisClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: 16, ContextTimeoutEnabled: true})
}
