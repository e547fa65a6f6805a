//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// TestShard_Figures logs what keys of other servers feel of one server of a Redis Cluster that is
// away for 30 s, without a replica. That server has not the table of sessions. It fails if they
// feel anything where the cluster serves the slots that it has.
func TestShard_Figures(t *testing.T) {
	if *failoverTimes == 0 {
		t.Skip("run it with -failover.times 1")
	}
	for _, full := range []string{"no", "yes"} {
		t.Run("cluster-require-full-coverage "+full, func(t *testing.T) { shardIsAway(t, full) })
	}
}

func shardIsAway(t *testing.T, full string) {
	const away = 30 * time.Second
	servers := redistest.StartCluster(t, 3, "--cluster-node-timeout", "15000", "--cluster-require-full-coverage", full)
	c := redistest.ClusterClient(t, servers)
	has := func(s *redistest.Server, key string) bool {
		m, err := c.MasterForKey(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return m.Options().Addr == s.Addr
	}
	gone := servers[slices.IndexFunc(servers, func(s *redistest.Server) bool { return !has(s, "{figures:s}") })]
	there := make(map[uint64]bool) // partitions of the other servers
	for p := range uint64(figurePartitions) {
		there[p] = !has(gone, fmt.Sprintf("{figures:p%d}", p))
	}
	key := func(format string, from int) string {
		for {
			if k := fmt.Sprintf(format, from); there[xxhash.Sum64String(k)%figurePartitions] {
				return k
			}
			from += 1000
		}
	}
	nodes := make([]*coord.Coordinator, figureNodes)
	for i := range nodes {
		x, err := coord.New(t.Context(), redisarbiter.New(redistest.ClusterClient(t, servers), &redisarbiter.Options{ColdStart: true}), &coord.Options{
			Namespace: "figures", Partitions: figurePartitions, Cluster: &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0"},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			_ = x.Close(ctx)
		})
		nodes[i] = x
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, n := range nodes {
		if err := n.Settled(ctx, figureNodes); err != nil {
			t.Fatal(err)
		}
	}
	var held []coord.Lock
	for i := range 300 {
		l, err := nodes[i%figureNodes].Lock(ctx, key("held %d", i))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, l)
	}
	time.Sleep(5 * time.Second) // two RenewEvery: all have looked

	var work sync.WaitGroup
	load, stop := context.WithCancel(t.Context())
	var mu sync.Mutex // protects what follows
	var locks, failed int
	var longest time.Duration
	for _, n := range nodes {
		work.Go(func() {
			for load.Err() == nil {
				began := time.Now()
				l, err := n.Lock(load, key("key %d", rand.IntN(1000)))
				took := time.Since(began)
				if load.Err() != nil {
					break
				}
				if err == nil {
					err = l.Unlock()
				}
				mu.Lock()
				locks, longest = locks+1, max(longest, took)
				if err != nil {
					failed++
				}
				mu.Unlock()
				time.Sleep(time.Millisecond)
			}
		})
	}
	gone.Kill()
	time.Sleep(away)
	if err := gone.Restart(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Second) // longer than any lease
	stop()
	work.Wait()
	lost := 0
	for _, l := range held {
		if err := l.Unlock(); errors.Is(err, coord.ErrLost) {
			lost++
		}
	}
	t.Logf("row: | %s | %d, of which %d failed | %.2f s | %d of %d |", full, locks, failed, longest.Seconds(), lost, len(held))
	if full == "no" && (failed > 0 || lost > 0 || longest > away/2) {
		t.Error("an outage of one server was one of the others' keys")
	}
}
