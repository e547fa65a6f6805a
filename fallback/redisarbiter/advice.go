package redisarbiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Advise implements [fallback.Adviser].
func (n *redisSpace) Advise(ctx context.Context) ([]string, error) {
	return outlive(ctx, &n.calls, func(ctx context.Context) (advice []string, err error) {
		var mu sync.Mutex     // protects advice, with and without: the masters are asked concurrently
		var with, without int // servers with replicas, and without
		ask, err := n.replicasNeeded(ctx)
		if err != nil {
			return nil, refused(err)
		}
		one := func(ctx context.Context, c *redis.Client) error {
			var clock *redis.TimeCmd
			var need func() needed
			info, err := readInfo(ctx, c, func(pipe redis.Pipeliner) { clock, need = pipe.Time(ctx), ask(c, pipe) })
			if err == nil {
				_, err = checkInfo(info)
			}
			if err == nil {
				err = checkClock(clock)
			}
			mu.Lock()
			defer mu.Unlock()
			advice = append(advice, adviceOn(info, n.opts.Replicas, c.Options().Addr)...)
			if n.results.Load() {
				advice = append(advice, adviceOnResults(info, c.Options().Addr)...)
			}
			if err == nil {
				advice = append(advice, need().advice(info, c.Options().Addr)...)
			}
			switch info["connected_slaves"] {
			case "":
			case "0":
				without++
			default:
				with++
			}
			return err
		}
		switch c := n.conns.work.(type) {
		case *redis.ClusterClient:
			if err = c.ForEachMaster(ctx, one); err == nil {
				advice = append(advice, n.adviceOnCluster(ctx, c, with, without)...)
			}
		case *redis.Client:
			err = one(ctx, c)
		}
		return advice, refused(err)
	})
}

// needed is how many replicas a server must have: for each change, and for a session to begin.
type needed struct{ changes, openings int }

// replicasNeeded returns ask. ask puts a question to the server into a pipeline, if it has one. It
// returns a function that tells the numbers once the server has answered.
func (n *redisSpace) replicasNeeded(ctx context.Context) (ask func(*redis.Client, redis.Pipeliner) func() needed, err error) {
	cluster, isCluster := n.conns.work.(*redis.ClusterClient)
	table := "" // the server that has the sessions
	if isCluster && n.variant == onAll {
		m, err := cluster.MasterForKey(ctx, n.sessions())
		if err != nil {
			return nil, err
		}
		table = m.Options().Addr
	}
	return func(c *redis.Client, pipe redis.Pipeliner) func() needed {
		x := needed{changes: n.opts.Replicas}
		switch {
		case n.variant != onAll || isCluster && c.Options().Addr != table:
			return func() needed { return x }
		case !isCluster:
			x.openings = max(n.opts.AllReplicas, 1) // one that only looks on may not have the option
			return func() needed { return x }
		}
		nodes := pipe.ClusterNodes(ctx)
		return func() needed {
			x.openings = max(n.opts.AllReplicas, 1, listed(nodes.Val()))
			return x
		}
	}, nil
}

// advice names the operations that fail while the server has fewer replicas.
func (x needed) advice(info map[string]string, addr string) []string {
	has, err := strconv.Atoi(info["connected_slaves"])
	switch {
	case err != nil: // it does not tell
	case has < x.changes:
		return []string{fmt.Sprintf("%s has %d replicas, and redisarbiter.Options.Replicas is %d: no session begins or is renewed, and locks in force are lost "+
			"after coord.Options.SessionTTL: bring the others back, or lower the option", serverName(addr), has, x.changes)}
	case has < x.openings:
		return []string{fmt.Sprintf("%s has %d of %d replicas, and redisarbiter.Options.AllReplicas needs all: no process can begin a session, and one that is started "+
			"anew gets none: bring the others back, and restart no process", serverName(addr), has, x.openings)}
	}
	return nil
}

// serverName is how an operator calls a server.
func serverName(addr string) string {
	if addr == failoverAddr {
		return "the primary that Sentinel names"
	}
	return addr
}

// adviceOn returns the advice on a server's INFO.
func adviceOn(info map[string]string, replicas int, addr string) (advice []string) {
	addr = serverName(addr)
	if info[notPermitted] != "" && info["maxmemory_policy"] == "" {
		advice = append(advice, fmt.Sprintf("%s does not tell its maxmemory-policy, as neither INFO nor CONFIG is permitted: "+
			"with allkeys-* it would evict locks, and two processes hold the same: use noeviction or volatile-*", addr))
	}
	// Redis tells of good replicas only if it waits for some.
	waits, more := info["min_slaves_good_slaves"] != "", ""
	if v := info["redis_version"]; v != "" && !atLeast(v, 6, 2, 7) {
		waits, more = false, fmt.Sprintf(" (which counts for scripts from Redis 6.2.7 on: this is %s)", v)
	}
	if n := info["connected_slaves"]; n != "" && n != "0" && replicas <= 0 && !waits {
		advice = append(advice, fmt.Sprintf("%s has replicas (%s), and acknowledges locks that none of them has: while it is cut off "+
			"and another one is promoted, two processes may hold the same lock: set redisarbiter.Options.Replicas to 1, or min-replicas-to-write "+
			"to 1 with a short min-replicas-max-lag%s", addr, n, more))
	}
	return advice
}

// adviceOnResults returns the advice on INFO where results are kept beside the locks. They expire,
// and locks do not, so a server that evicts only expiring keys is fit for locks.
func adviceOnResults(info map[string]string, addr string) []string {
	limit, policy := info["maxmemory"], info["maxmemory_policy"]
	if limit == "" || limit == "0" || !strings.HasPrefix(policy, "volatile-") {
		return nil
	}
	return []string{fmt.Sprintf("%s has a maxmemory-policy of %s, and evicts results when it has filled its maxmemory of %s bytes, before they expire: functions of coord.Share run again, "+
		"a tick of package periodic may run twice, and leaders are not found: set maxmemory-policy to noeviction, or keep results elsewhere (ShareOptions.Store, Options.Store)",
		serverName(addr), policy, limit)}
}

// promotes is how long a replica takes in a Redis Cluster, after cluster-node-timeout, until it has
// taken over: some 2 s, measured, to 4 s.
const promotes = 4 * time.Second

// adviceOnCluster is about a Redis Cluster with replicas. Its servers may miss one of them for
// longer than locks last without it, or refuse all keys while one is away. It does not ask again
// where CONFIG is not permitted.
func (n *redisSpace) adviceOnCluster(ctx context.Context, c *redis.ClusterClient, with, without int) (advice []string) {
	if with == 0 || n.noConfig.Load() {
		return nil
	}
	told, err := c.ConfigGet(ctx, "cluster-*").Result()
	if e, answered := errors.AsType[redis.Error](err); answered && strings.HasPrefix(e.Error(), "NOPERM") {
		n.noConfig.Store(true)
	}
	if n.settings.Lease > 0 {
		advice = timeoutAdvice(told["cluster-node-timeout"], n.settings.Lease)
	}
	if without > 0 && told["cluster-require-full-coverage"] == "yes" {
		advice = append(advice, fmt.Sprintf("cluster-require-full-coverage is yes, and %d of %d servers of the Redis Cluster have no replica: while one of them is away, soon all "+
			"others refuse all commands, and locks of all keys are lost after coord.Options.SessionTTL, not of its own only: give each a replica, or set it to no", without, with+without))
	}
	return advice
}

// maxRenewEvery is the longest default of how often a session is renewed.
const maxRenewEvery = 5 * time.Second / 2

// timeoutAdvice is about a cluster-node-timeout in milliseconds, for sessions that rely on their
// leases for so long at most.
func timeoutAdvice(timeout string, lease time.Duration) []string {
	ms, err := strconv.Atoi(timeout)
	t := lease * 10 / 11 // lease is T + M
	renew := min(t/4, maxRenewEvery)
	lasts := t*8/10 - renew - renew/20 // T - M - delta - R, by default, and until a renewal that failed is made again
	away := time.Duration(ms)*time.Millisecond + promotes
	if err != nil || away <= lasts {
		return nil
	}
	return []string{fmt.Sprintf("cluster-node-timeout is %v: when a server of the Redis Cluster crashes, its replica takes over after up to %v, and locks "+
		"in force last for %v without it: set it to 1300 (ms), or coord.Options.SessionTTL to %v", time.Duration(ms)*time.Millisecond, away, lasts.Round(100*time.Millisecond),
		time.Duration(math.Ceil((away+maxRenewEvery+maxRenewEvery/20).Seconds()/0.8))*time.Second)}
}
