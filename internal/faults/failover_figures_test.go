//go:build unix

package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

var failoverTimes = flag.Int("failover.times", 0, "how often TestFailover_Figures has each failover; 0: it is skipped")

// TestFailover_Figures logs the costs of failovers of Sentinel and Redis Cluster with the default
// options: for keys of owners, and for keys without one. It fails if a lock is lost.
func TestFailover_Figures(t *testing.T) {
	if *failoverTimes == 0 {
		t.Skip("run it with -failover.times 5")
	}
	redis.SetLogger(quiet{})
	for _, f := range []figure{
		{"Sentinel", "SENTINEL FAILOVER", sentinelFailsOver(false, 0)},
		{"Sentinel", "SIGKILL of the primary", sentinelFailsOver(true, 0)},
		{"Sentinel, AllReplicas", "SENTINEL FAILOVER", sentinelFailsOver(false, 1)},
		{"Sentinel, AllReplicas", "SIGKILL of the primary", sentinelFailsOver(true, 1)},
		{"Sentinel, AllReplicas, Grace 11 s", "SENTINEL FAILOVER", hurried(sentinelFailsOver(false, 1))},
		{"Sentinel, AllReplicas, Grace 11 s", "SIGKILL of the primary", hurried(sentinelFailsOver(true, 1))},
		{"Redis Cluster, a server without the sessions", "CLUSTER FAILOVER", clusterFailsOver(false, false, 0)},
		{"Redis Cluster, a server without the sessions", "SIGKILL", clusterFailsOver(false, true, 0)},
		{"Redis Cluster, the server of the sessions", "CLUSTER FAILOVER", clusterFailsOver(true, false, 0)},
		{"Redis Cluster, the server of the sessions", "SIGKILL", clusterFailsOver(true, true, 0)},
		{"Redis Cluster, AllReplicas, a server without the sessions", "SIGKILL", clusterFailsOver(false, true, 1)},
		{"Redis Cluster, AllReplicas, the server of the sessions", "CLUSTER FAILOVER", clusterFailsOver(true, false, 1)},
		{"Redis Cluster, AllReplicas, the server of the sessions", "SIGKILL", clusterFailsOver(true, true, 1)},
		{"Redis Cluster, AllReplicas, Grace 11 s, the server of the sessions", "CLUSTER FAILOVER", hurried(clusterFailsOver(true, false, 1))},
		{"Redis Cluster, AllReplicas, Grace 11 s, the server of the sessions", "SIGKILL", hurried(clusterFailsOver(true, true, 1))},
	} {
		t.Run(f.where+", "+f.what, func(t *testing.T) { f.measure(t, *failoverTimes) })
	}
}

// quiet is a logger of go-redis that says nothing of servers that are gone.
type quiet struct{}

// Printf implements the logger of go-redis.
func (quiet) Printf(context.Context, string, ...any) {}

// A figure is a kind of failover.
type figure struct {
	where, what string
	begin       func(t *testing.T) stage
}

// A stage is servers before the failover of one of them.
type stage struct {
	client   func() redis.UniversalClient
	all      int                 // Options.AllReplicas
	times    coord.Options       // only times
	strike   func()              // begins the failover
	promoted func() bool         // the replica is the primary
	concerns func(k string) bool // the key's record, without an owner, is on the server that fails over
}

const figurePartitions, figureNodes = 61, 3

// measured is the result of one failover.
type measured struct {
	promoted, again  time.Duration // since it began: the replica is promoted; all new keys that were asked for are had
	longest          time.Duration // of locks of owners' keys
	locks, bad, lost int
}

func (f figure) measure(t *testing.T, times int) {
	var all []measured
	for i := range times {
		t.Run(fmt.Sprint(i), func(t *testing.T) { all = append(all, f.once(t)) })
	}
	if len(all) == 0 {
		t.Fatal("nothing was measured")
	}
	column := func(of func(m measured) time.Duration) string {
		var d []time.Duration
		for _, m := range all {
			d = append(d, of(m))
		}
		slices.Sort(d)
		return fmt.Sprintf("%.1f s (%.1f to %.1f)", d[len(d)/2].Seconds(), d[0].Seconds(), d[len(d)-1].Seconds())
	}
	var sum measured
	for _, m := range all {
		sum.locks, sum.bad, sum.lost, sum.longest = sum.locks+m.locks, sum.bad+m.bad, sum.lost+m.lost, max(sum.longest, m.longest)
	}
	t.Logf("row: | %s | %s | %d | %s | %s | %d, of which %d failed | %.2f s | %d |", f.where, f.what, len(all), column(func(m measured) time.Duration { return m.promoted }),
		column(func(m measured) time.Duration { return m.again - m.promoted }), sum.locks, sum.bad, sum.longest.Seconds(), sum.lost)
}

func (f figure) once(t *testing.T) (m measured) {
	st := f.begin(t)
	node := func(name string, c *coord.Cluster) *coord.Coordinator {
		opts := st.times
		opts.Namespace, opts.Cluster = name, c
		return figureNode(t, st.client(), st.all, opts)
	}
	nodes := figureCluster(t, func() *coord.Coordinator { return node("figures", clusterOnLoopback()) })
	alone := node("alone", nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var held []coord.Lock
	for i := range 100 {
		for _, n := range []*coord.Coordinator{alone, nodes[i%figureNodes]} {
			l, err := n.Lock(ctx, fmt.Sprint("held ", i))
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, l)
		}
	}
	time.Sleep(5 * time.Second) // two RenewEvery: replicas are in step, and all have looked

	stop := keepLocking(t, nodes, func() string { return fmt.Sprint("owned ", rand.IntN(1000)) })
	began := time.Now()
	st.strike()
	await.Within(t, time.Minute, "the replica is promoted", st.promoted)
	m.promoted = time.Since(began)
	var asks sync.WaitGroup // for keys that no process has had
	for asked, i := 0, 0; asked < 8; i++ {
		if k := fmt.Sprint("new ", i); st.concerns(k) {
			asked++
			asks.Go(func() {
				for { // the connection may be to the server of before yet
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					l, err := alone.Lock(ctx, k)
					cancel()
					if err == nil {
						err = l.Unlock()
					}
					if err == nil || t.Context().Err() != nil {
						return
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
	}
	asks.Wait()
	m.again = time.Since(began)
	time.Sleep(time.Until(began.Add(14 * time.Second))) // longer than Grace, and than any lease
	m.locks, m.bad, m.longest = stop()
	m.lost = lostOf(held)
	if m.lost > 0 || m.bad > 0 {
		t.Errorf("%d of %d locks were lost, %d of %d locks of owners' keys failed", m.lost, len(held), m.bad, m.locks)
	}
	return m
}

// figureNode starts a process of the figures. It ends with the test.
func figureNode(t *testing.T, client redis.UniversalClient, all int, opts coord.Options) *coord.Coordinator {
	opts.Partitions = figurePartitions
	x, err := coord.New(t.Context(), redisarbiter.New(client, &redisarbiter.Options{ColdStart: true, AllReplicas: all}), &opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = x.Close(ctx)
	})
	return x
}

func clusterOnLoopback() *coord.Cluster {
	return &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0"}
}

// figureCluster starts the nodes of the figures, and waits until they have shared the partitions out.
func figureCluster(t *testing.T, start func() *coord.Coordinator) (nodes []*coord.Coordinator) {
	for range figureNodes {
		nodes = append(nodes, start())
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, n := range nodes {
		if err := n.Settled(ctx, figureNodes); err != nil {
			t.Fatal(err)
		}
	}
	return nodes
}

// keepLocking has one worker of each node lock keys until stop. That returns how many locks there
// were, how many of them failed, and the longest wait for one. A wait to the end counts.
func keepLocking(t *testing.T, nodes []*coord.Coordinator, key func() string) (stop func() (locks, bad int, longest time.Duration)) {
	var work sync.WaitGroup
	load, end := context.WithCancel(t.Context())
	var mu sync.Mutex // protects the variables below
	var locks, bad int
	var longest time.Duration
	for _, n := range nodes {
		work.Go(func() {
			for load.Err() == nil {
				began := time.Now()
				l, err := n.Lock(load, key())
				took, over := time.Since(began), load.Err() != nil
				if err == nil {
					err = l.Unlock()
				}
				mu.Lock()
				longest = max(longest, took)
				if !over {
					locks++
				}
				if !over && err != nil {
					bad++
				}
				mu.Unlock()
				time.Sleep(time.Millisecond) // between requests, as a service has
			}
		})
	}
	return func() (int, int, time.Duration) {
		end()
		work.Wait()
		return locks, bad, longest
	}
}

// lostOf unlocks all, and says how many had been lost.
func lostOf(held []coord.Lock) (lost int) {
	for _, l := range held {
		if err := l.Unlock(); errors.Is(err, coord.ErrLost) {
			lost++
		}
	}
	return lost
}

// hurried is a stage with half a second each for how clocks differ, and for how long a server that
// was deposed answers.
func hurried(begin func(t *testing.T) stage) func(t *testing.T) stage {
	return func(t *testing.T) stage {
		st := begin(t)
		st.times = coord.Options{Margin: time.Second / 2, Grace: 11 * time.Second}
		return st
	}
}

// eachWrite are arguments of a server whose disk keeps each write, if all is more than 0.
func eachWrite(all int) []string {
	if all == 0 {
		return nil
	}
	return []string{"--appendonly", "yes", "--appendfsync", "always"}
}

// sentinelFailsOver has a primary with one replica, and a Sentinel. all is Options.AllReplicas.
func sentinelFailsOver(crash bool, all int) func(t *testing.T) stage {
	return func(t *testing.T) stage {
		args := append(eachWrite(all), "--repl-diskless-sync-delay", "0")
		primary, replica := redistest.Start(t, args...), redistest.Start(t, args...)
		follow(t, replica, primary)
		at := startSentinel(t, primary)
		s := redis.NewSentinelClient(&redis.Options{Addr: at})
		t.Cleanup(func() { _ = s.Close() })
		return stage{
			all: all,
			client: func() redis.UniversalClient {
				c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: primaryName, SentinelAddrs: []string{at}})
				t.Cleanup(func() { _ = c.Close() })
				return c
			},
			strike: func() {
				if crash {
					primary.Kill()
				} else if err := s.Failover(t.Context(), primaryName).Err(); err != nil {
					t.Fatal(err)
				}
			},
			promoted: func() bool {
				addr, err := s.GetMasterAddrByName(t.Context(), primaryName).Result()
				return err == nil && len(addr) == 2 && addr[1] == replica.Port()
			},
			concerns: func(string) bool { return true },
		}
	}
}

// clusterFailsOver has three primaries. One of them has a replica: that with the table of sessions,
// or another one. all is Options.AllReplicas: then servers that have a table have a replica, too.
func clusterFailsOver(sessions, crash bool, all int) func(t *testing.T) stage {
	return func(t *testing.T) stage {
		args := append(eachWrite(all), "--cluster-node-timeout", "1500") // with 15 s, its default, locks are lost before the replica is promoted
		nodes := redistest.StartCluster(t, 3, args...)
		c := redistest.ClusterClient(t, nodes)
		has := func(s *redistest.Server, key string) bool {
			m, err := c.MasterForKey(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			return m.Options().Addr == s.Addr
		}
		i := slices.IndexFunc(nodes, func(s *redistest.Server) bool { return has(s, "{alone:s}") == sessions })
		primary, replica := nodes[i], redistest.StartClusterNode(t, args...)
		r := replica.Client(t)
		replica.FollowInCluster(t, primary)
		for _, s := range nodes {
			if all > 0 && s != primary && (has(s, "{alone:s}") || has(s, "{figures:s}")) {
				redistest.StartClusterNode(t, args...).FollowInCluster(t, s)
			}
		}
		mine := make(map[uint64]bool)
		for p := range uint64(figurePartitions) {
			mine[p] = has(primary, fmt.Sprintf("{alone:p%d}", p))
		}
		return stage{
			all:    all,
			client: func() redis.UniversalClient { return redistest.ClusterClient(t, nodes) },
			strike: func() {
				if crash {
					primary.Kill()
				} else {
					await.Within(t, time.Minute, "the failover begins", func() bool { return r.ClusterFailover(t.Context()).Err() == nil })
				}
			},
			promoted: func() bool { return strings.Contains(r.Info(t.Context(), "replication").Val(), "role:master") },
			concerns: func(k string) bool { return mine[xxhash.Sum64String(k)%figurePartitions] },
		}
	}
}
