package redisarbiter

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Advise implements [fallback.Adviser].
func (n *redisSpace) Advise(ctx context.Context) ([]string, error) {
	return outlive(ctx, &n.calls, func(ctx context.Context) (advice []string, err error) {
		var mu sync.Mutex // protects advice: the masters are asked concurrently
		one := func(ctx context.Context, c *redis.Client) error {
			var clock *redis.TimeCmd
			info, err := readInfo(ctx, c, func(pipe redis.Pipeliner) { clock = pipe.Time(ctx) })
			if err == nil {
				_, err = checkInfo(info)
			}
			if err == nil {
				err = checkClock(clock)
			}
			mu.Lock()
			defer mu.Unlock()
			advice = append(advice, adviceOn(info, n.opts.Replicas, c.Options().Addr)...)
			return err
		}
		switch c := n.conns.work.(type) {
		case *redis.ClusterClient:
			err = c.ForEachMaster(ctx, one)
		case *redis.Client:
			err = one(ctx, c)
		}
		return advice, refused(err)
	})
}

// adviceOn is what a server's INFO gives reason to say.
func adviceOn(info map[string]string, replicas int, addr string) (advice []string) {
	if addr == failoverAddr {
		addr = "the primary that Sentinel names"
	}
	if info[notPermitted] != "" && info["maxmemory_policy"] == "" {
		advice = append(advice, fmt.Sprintf("%s does not tell its maxmemory-policy, as neither INFO nor CONFIG is permitted: "+
			"with allkeys-* it would evict locks, and two processes hold the same: use noeviction or volatile-*", addr))
	}
	// Redis tells of good replicas only if it waits for some.
	if n := info["connected_slaves"]; n != "" && n != "0" && replicas <= 0 && info["min_slaves_good_slaves"] == "" {
		advice = append(advice, fmt.Sprintf("%s has replicas (%s), and acknowledges locks that none of them has: while it is cut off "+
			"and another one is promoted, two processes may hold the same lock: set redisarbiter.Options.Replicas to 1, or min-replicas-to-write "+
			"to 1 with a short min-replicas-max-lag", addr, n))
	}
	return advice
}
