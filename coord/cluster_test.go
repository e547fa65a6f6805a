package coord_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

func TestOneShardDownTakesOnlyItsOwnLocks(t *testing.T) {
	takes.Seconds(t)
	nodes := redistest.StartCluster(t, 3, "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "15000")
	client := redistest.ClusterClient(t, nodes)
	c, err := coord.New(context.Background(), redisarbiter.New(client, &redisarbiter.Options{ColdStart: true}), &coord.Options{SessionTTL: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx)
	}()
	shard := func(key string) string {
		p := xxhash.Sum64String(key) % 1021
		m, err := client.MasterForKey(t.Context(), fmt.Sprintf("{holdfast:p%d}", p))
		if err != nil {
			t.Fatal(err)
		}
		return m.Options().Addr
	}
	m, _ := client.MasterForKey(t.Context(), "{holdfast:s}")
	sessions := m.Options().Addr
	var victim *redistest.Server
	for _, n := range nodes {
		if n.Addr != sessions {
			victim = n
		}
	}
	locks := map[string]coord.Lock{}
	for i := range 60 {
		k := fmt.Sprint("key", i)
		locks[k] = lock(t, c, k)
		locks[k].Context()
	}
	where := map[string]string{}
	for k := range locks {
		where[k] = shard(k)
	}
	verified := func(rounds uint64) { // so many renewals and reads from now
		before := c.Stats().Calls[coord.OpRenew]
		await.Until(t, "renewals", func() bool { return c.Stats().Calls[coord.OpRenew] >= before+rounds })
	}
	verified(2)
	victim.Kill()
	for k, l := range locks {
		if where[k] == victim.Addr {
			<-l.Context().Done() // no server confirms it any more; a lock that lives by its session alone is lost by now, too
		}
	}
	verified(2)
	healthy, lost := 0, 0
	for k, l := range locks {
		if where[k] == victim.Addr {
			continue
		}
		healthy++
		if l.Context().Err() != nil {
			lost++
		}
	}
	if healthy == 0 || lost > 0 {
		t.Errorf("one of three shards is down: %d of %d locks on the healthy shards were lost; sessions %d", lost, healthy, c.Stats().Sessions)
	}
}

func TestADeadHolderIsFoundWhileAnotherShardIsDown(t *testing.T) {
	takes.Seconds(t)
	nodes := redistest.StartCluster(t, 3, "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "15000")
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.Addr)
	}
	connect := func() *redis.ClusterClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	}
	clientA, client := connect(), connect()
	defer client.Close()
	o := &coord.Options{SessionTTL: 4 * time.Second}
	// One client for everything, so that to close it is like a crash.
	a, err := coord.New(context.Background(), redisarbiter.New(clientA, &redisarbiter.Options{ColdStart: true, Background: clientA}), o)
	if err != nil {
		t.Fatal(err)
	}
	b, err := coord.New(context.Background(), redisarbiter.New(client, &redisarbiter.Options{ColdStart: true}), &coord.Options{SessionTTL: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	end := func(c *coord.Coordinator) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx)
	}
	defer end(a)
	defer end(b)
	m, _ := client.MasterForKey(t.Context(), "{holdfast:s}")
	sessions := m.Options().Addr
	var victim *redistest.Server
	for _, n := range nodes {
		if n.Addr != sessions {
			victim = n
		}
	}
	key := ""
	for i := 0; key == ""; i++ {
		k := fmt.Sprint("key", i)
		p := xxhash.Sum64String(k) % 1021
		m, _ := client.MasterForKey(t.Context(), fmt.Sprintf("{holdfast:p%d}", p))
		if m.Options().Addr != victim.Addr {
			key = k
		}
	}
	lock(t, a, key)
	unlock(t, lock(t, b, "warm"))
	await.Until(t, "the release is sent", func() bool { return b.Stats().Kept == 0 })
	clientA.Close() // a has crashed
	victim.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	begin := time.Now()
	l, err := b.Lock(ctx, key)
	if err != nil {
		t.Errorf("session and key are on shards that are well, T is 4 s: after %v %v", time.Since(begin), err)
		return
	}
	unlock(t, l)
}
