package idempotent

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// CheckMemory logs if the server's memory is limited and locks share it, or if the server evicts
// records. It says nothing where the server does not tell.
func (s *RedisStore) CheckMemory(namespace string, logger *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	limit, policy := s.memory(ctx)
	if limit == "" || limit == "0" {
		return
	}
	if policy != "noeviction" {
		logger.Warn("holdfast: the Redis server of the idempotency records evicts keys: a request whose record is evicted is executed again",
			"maxmemory", limit, "policy", policy)
	}
	// The sessions of package fallback are there as long as a process uses the namespace.
	if n, err := s.client.Exists(ctx, "{"+namespace+":s}").Result(); err == nil && n > 0 {
		logger.Warn("holdfast: idempotency records are on the Redis server of the locks, whose memory is limited: when they have filled it, no "+
			"lock can be taken", "maxmemory", limit, "policy", policy, "namespace", namespace)
	}
}

// memory returns the maxmemory and the policy of a server that has a limit, empty if there is none.
func (s *RedisStore) memory(ctx context.Context) (limit, policy string) {
	ask := func(ctx context.Context, c redis.Cmdable) (limit, policy string) {
		text, _ := c.Info(ctx, "memory").Result() // which may not be permitted
		for line := range strings.Lines(text) {
			switch name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name {
			case "maxmemory":
				limit = value
			case "maxmemory_policy":
				policy = value
			}
		}
		return limit, policy
	}
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return ask(ctx, s.client)
	}
	var mu sync.Mutex // the masters are asked concurrently
	_ = cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		l, p := ask(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		if l != "" && l != "0" {
			limit, policy = l, p
		}
		return nil
	})
	return limit, policy
}
