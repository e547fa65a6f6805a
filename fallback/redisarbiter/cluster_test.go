package redisarbiter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

func TestRedisClusterConforms(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	nodes := redistest.StartCluster(t, 3)
	arbitertest.Run(t, arbitertest.Fixture{
		New: func(t *testing.T) fallback.Arbiter { return redisarbiter.New(redistest.ClusterClient(t, nodes), cold) },
	})
}

func TestRedisCluster(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	nodes := redistest.StartCluster(t, 3)
	c := redistest.ClusterClient(t, nodes)
	settings := fallback.Settings{Namespace: "ns", Partitions: 64, Grace: time.Hour}
	n := attachTo(t, c, cold, settings)

	t.Run("the namespace is spread over all nodes", func(t *testing.T) {
		for i, s := range nodes {
			if size := s.Client(t).DBSize(t.Context()).Val(); size < 5 {
				t.Errorf("node %d has %d keys", i, size)
			}
		}
	})
	t.Run("every node tells who it is", func(t *testing.T) {
		if !n.Guarded() {
			t.Error("not Guarded")
		}
		wantGrace(t, n, settings, false)
	})
	t.Run("scripts are loaded again where a node has forgotten them", func(t *testing.T) {
		use(t, n)
		for _, s := range nodes {
			if err := s.Client(t).ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			use(t, n)
			wantGrace(t, n, settings, false)
		}
	})
	t.Run("a result lies in the slot of its partition", func(t *testing.T) {
		for p, key := range []string{"k", "{other}", "}{", "a\nb"} {
			p := uint32(p)
			if v, err := n.(fallback.ResultStore).SaveResult(t.Context(), p, key, []byte("v"), 1, time.Hour); v != fallback.Granted || err != nil {
				t.Fatalf("%q: %v, %v", key, v, err)
			}
			at := fmt.Sprintf("{ns:p%d}:v:%s", p, key)
			slot := c.ClusterKeySlot(t.Context(), at).Val()
			if want := c.ClusterKeySlot(t.Context(), fmt.Sprintf("{ns:p%d}", p)).Val(); slot != want || c.Exists(t.Context(), at).Val() != 1 {
				t.Errorf("%q is not in slot %d", at, want)
			}
		}
	})
	t.Run("too few replicas anywhere is an error", func(t *testing.T) {
		other := settings
		other.Namespace = "acknowledged"
		n := attachTo(t, c, &redisarbiter.Options{ColdStart: true, Replicas: 1, ReplicaTimeout: 20 * time.Millisecond}, other)
		if r, err := n.Open(t.Context(), "alice", fallback.Registration{TTL: time.Hour}); err == nil {
			t.Errorf("Open: got %+v, want an error", r)
		}
		use(t, n)
	})
	t.Run("one node that may evict locks is enough to be refused", func(t *testing.T) {
		bad := nodes[1].Client(t)
		if err := bad.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, c, "maxmemory-policy")
		if err := bad.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err(); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a node that restarted empty is in Grace alone", func(t *testing.T) {
		open(t, n, "alice")
		restart(t, nodes[2])
		if err := redistest.AwaitCluster(t.Context(), nodes); err != nil {
			t.Fatal(err)
		}
		await.Within(t, patience, "the node is found again", func() bool {
			_, err := n.Renew(t.Context(), "alice", fallback.Registration{TTL: time.Hour})
			return err == nil
		})
		for p := range uint32(settings.Partitions) {
			key := fmt.Sprintf("{ns:p%d}", p)
			master, err := c.MasterForKey(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			r, err := n.Load(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := r.Grace > 0, master.Options().Addr == nodes[2].Addr; got != want {
				t.Errorf("partition %d on %s: in Grace %t, want %t", p, master.Options().Addr, got, want)
			}
		}
	})
}
