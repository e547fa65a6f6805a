package coord_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// A new namespace on a server that was promoted long ago waits for Grace, as the server does not
// tell when that was. The error says that, and not only that data may be lost.
func TestSettled_ANewNamespaceOnAPromotedServer(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	first, second := redistest.Start(t, "--repl-diskless-sync-delay", "0"), redistest.Start(t)
	if err := second.Replicate(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	client := second.Client(t)
	await.Within(t, time.Minute, "replication", func() bool {
		return strings.Contains(client.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	if err := client.ReplicaOf(t.Context(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	opts := &coord.Options{Namespace: "new", Partitions: 3, SessionTTL: time.Second, Grace: 3 * time.Second,
		Cluster: &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0"}}
	uptime := func() int {
		n, err := strconv.Atoi(client.InfoMap(t.Context(), "server").Val()["Server"]["uptime_in_seconds"])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	promoted := uptime()
	await.Until(t, "the server is up for longer than Grace after its promotion", func() bool { return uptime() >= promoted+4 })
	c := start(t, redisarbiter.New(client, nil), opts)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.Settled(ctx, 1); err == nil || !strings.Contains(err.Error(), "or was promoted at some time before this namespace was new") {
		t.Errorf("Settled: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Settled(ctx, 1); err != nil { // and no longer
		t.Error(err)
	}
}
