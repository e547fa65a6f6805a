//go:build unix

package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// TestShard_Figures logs the effect on keys of other servers while one server of a Redis Cluster,
// without a replica, is away for 30 s. That server has not the table of sessions. The test fails if
// there is any effect where the cluster serves the slots that it has.
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
	nodes := figureCluster(t, func() *coord.Coordinator {
		return figureNode(t, redistest.ClusterClient(t, servers), 0, coord.Options{Namespace: "figures", Cluster: clusterOnLoopback()})
	})
	var held []coord.Lock
	for i := range 300 {
		l, err := nodes[i%figureNodes].Lock(t.Context(), key("held %d", i))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, l)
	}
	time.Sleep(5 * time.Second) // two RenewEvery: all have looked

	stop := keepLocking(t, nodes, func() string { return key("key %d", rand.IntN(1000)) })
	gone.Kill()
	time.Sleep(away)
	if err := gone.Restart(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Second) // longer than any lease
	locks, failed, longest := stop()
	lost := lostOf(held)
	t.Logf("row: | %s | %d, of which %d failed | %.2f s | %d of %d |", full, locks, failed, longest.Seconds(), lost, len(held))
	if full == "no" && (failed > 0 || lost > 0 || longest > away/2) {
		t.Error("an outage of one server was one of the others' keys")
	}
}
