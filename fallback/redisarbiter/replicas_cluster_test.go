package redisarbiter_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

var onAllShortly = &redisarbiter.Options{ColdStart: true, AllReplicas: 1, ReplicaTimeout: 100 * time.Millisecond}

// keepingCluster starts a Redis Cluster with disks that keep each write, and returns its servers:
// first the one with the sessions.
func keepingCluster(t *testing.T) (*redis.ClusterClient, []*redistest.Server) {
	t.Helper()
	nodes := redistest.StartCluster(t, 3, always...)
	c := redistest.ClusterClient(t, nodes)
	m, err := c.MasterForKey(t.Context(), sessionsKey)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range nodes {
		if s.Addr == m.Options().Addr {
			nodes[0], nodes[i] = nodes[i], nodes[0]
		}
	}
	return c, nodes
}

// followInCluster starts a replica, and waits until all servers list it.
func followInCluster(t *testing.T, nodes []*redistest.Server, primary *redistest.Server) *redistest.Server {
	t.Helper()
	r := redistest.StartClusterNode(t, always...)
	r.FollowInCluster(t, primary)
	m := &slotMove{t: t}
	mine, its := m.id(r.Client(t)), m.id(primary.Client(t))
	for _, s := range nodes {
		c := s.Client(t)
		await.Within(t, patience, "the replica is listed", func() bool {
			for line := range strings.Lines(c.ClusterNodes(t.Context()).Val()) {
				if f := strings.Fields(line); len(f) > 3 && f[0] == mine && f[3] == its {
					return true
				}
			}
			return false
		})
	}
	return r
}

// replicaHas reports whether a replica has a session.
func replicaHas(t *testing.T, r *redistest.Server, id string) (is bool) {
	t.Helper()
	await.Until(t, "the replica answers", func() bool { // it may have joined a moment ago
		pipe := r.Client(t).Pipeline() // READONLY is of its connection
		pipe.ReadOnly(t.Context())
		has := pipe.HExists(t.Context(), sessionsKey, "s:"+id)
		_, err := pipe.Exec(t.Context())
		is = has.Val()
		return err == nil
	})
	return is
}

// refusesToOpen tells that a session is not opened, and why. On a slow machine a replica may not
// answer in time that has the session: it is tried again, as nodes do.
func refusesToOpen(t *testing.T, n fallback.Namespace, id, why string) {
	t.Helper()
	var err error
	defer func() {
		if t.Failed() {
			t.Logf("%s: %v", id, err)
		}
	}()
	await.Until(t, "it is refused: "+why, func() bool {
		if err = enterSession(t.Context(), n, id); err == nil {
			t.Fatalf("%s: opened, want %q", id, why)
		}
		return strings.Contains(err.Error(), why)
	})
}

// In a Redis Cluster a session counts once the replicas of the server have it that has the table:
// all that the cluster lists, also those that are away (E7).
func TestAllReplicas_InARedisCluster(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	c, nodes := keepingCluster(t)
	n := attachTo(t, c, onAllShortly, replicas)
	followInCluster(t, nodes, nodes[1])
	refusesToOpen(t, n, "a", "AllReplicas): 0 of 1") // another server's replica is none of this one
	first := followInCluster(t, nodes, nodes[0])
	await.Until(t, "it opens with one", func() bool { return enterSession(t.Context(), n, "a") == nil })
	second := followInCluster(t, nodes, nodes[0])
	await.Until(t, "it opens with two", func() bool { return enterSession(t.Context(), n, "b") == nil })
	for _, id := range []string{"a", "b"} {
		if !replicaHas(t, first, id) || !replicaHas(t, second, id) {
			t.Errorf("a replica lacks %s", id)
		}
	}
	gone := (&slotMove{t: t}).id(second.Client(t))
	p := nodes[0].Client(t)
	second.Kill()
	await.Until(t, "it is away", func() bool { return strings.Contains(p.Info(t.Context(), "replication").Val(), "connected_slaves:1\r") })
	refusesToOpen(t, n, "c", "1 of 2")
	advises(t, n, "has 1 of 2 replicas, and redisarbiter.Options.AllReplicas needs all")
	if _, err := n.Renew(t.Context(), "b", fallback.Registration{TTL: 10 * time.Second}); err != nil { // it counts already
		t.Errorf("a renewal: %v", err)
	}
	await.Until(t, "it opens when the cluster has forgotten the one that is away", func() bool {
		for _, s := range append([]*redistest.Server{first}, nodes...) { // they tell each other of it
			_ = s.Client(t).ClusterForget(t.Context(), gone).Err()
		}
		return enterSession(t.Context(), n, "c") == nil
	})
	if err := p.ConfigSet(t.Context(), "appendfsync", "everysec").Err(); err != nil {
		t.Fatal(err)
	}
	if err := enterSession(t.Context(), n, "d"); !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), "appendfsync") {
		t.Errorf("its disk is late: %v", err)
	}
}

// The slot of the sessions moves: an opening counts at the server that has the table, once the
// replicas of that one have it.
func TestAllReplicas_TheSessionsSlotMoves(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	c, nodes := keepingCluster(t)
	followInCluster(t, nodes, nodes[0])
	n := attachTo(t, c, onAllShortly, replicas)
	await.Until(t, "it opens", func() bool { return enterSession(t.Context(), n, "a") == nil })
	m := beginMove(t, c, nodes, sessionsKey)
	await.Until(t, "it opens while the slot is open: its server has the table", func() bool { return enterSession(t.Context(), n, "b") == nil })
	m.keys()
	refusesToOpen(t, n, "c", "ASK")
	m.end()
	refusesToOpen(t, n, "c", "AllReplicas): 0 of 1") // at the other server
	r := followInCluster(t, nodes, m.to)
	await.Until(t, "it opens at the other server", func() bool { return enterSession(t.Context(), n, "c") == nil })
	for _, id := range []string{"a", "b", "c"} {
		if !replicaHas(t, r, id) {
			t.Errorf("its replica lacks %s", id)
		}
	}
}

// The server of the sessions fails over on order: the client learns of that by MOVED, all sessions
// are there, and a round is complete in Grace of the table.
func TestAllReplicas_AFailoverInARedisCluster(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	c, nodes := keepingCluster(t)
	r := followInCluster(t, nodes, nodes[0])
	n := attachTo(t, c, onAll, replicas)
	for _, id := range []string{"a", "b"} {
		await.Until(t, "it is opened", func() bool { return enterSession(t.Context(), n, id) == nil })
	}
	admin := r.Client(t)
	await.Until(t, "the failover begins", func() bool { return admin.ClusterFailover(t.Context()).Err() == nil })
	await.Until(t, "the replica is the primary", func() bool { return strings.Contains(admin.Info(t.Context(), "replication").Val(), "role:master") })
	turn := func(id string, x fallback.RoundCall) (a fallback.Renewal) {
		t.Helper()
		await.Until(t, "it is answered", func() (ok bool) {
			var err error
			a, err = n.Renew(t.Context(), id, fallback.Registration{TTL: 10 * time.Second, Round: x})
			return err == nil
		})
		if !a.Alive || a.Grace == 0 {
			t.Fatalf("%+v", a)
		}
		return a
	}
	turn("a", fallback.RoundCall{Begin: "r1"})
	if a := turn("a", fallback.RoundCall{Spoke: "r1", Ask: true}); a.Round.Complete {
		t.Error("it is complete without b")
	}
	await.Until(t, "the primary of before follows, and a session is opened", func() bool { return enterSession(t.Context(), n, "c") == nil })
	if !replicaHas(t, nodes[0], "c") {
		t.Error("the primary of before lacks c")
	}
	turn("b", fallback.RoundCall{Spoke: "r1"})
	if a := turn("c", fallback.RoundCall{Spoke: "r1", Ask: true}); !a.Round.Complete || a.Round.Name != "r1" {
		t.Errorf("it is not complete: %+v", a)
	}
}

// An opening by a client with an old map of the slots is refused where the slot was, and counts
// nowhere.
func TestAllReplicas_AnOldMapOfTheSlots(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	_, nodes := keepingCluster(t)
	followInCluster(t, nodes, nodes[0])
	o := &redis.ClusterOptions{Addrs: []string{nodes[0].Addr}, MaxRedirects: -1}
	c := redis.NewClusterClient(o)
	t.Cleanup(func() { _ = c.Close() })
	n := attachTo(t, c, onAllShortly, replicas)
	await.Until(t, "it opens", func() bool { return enterSession(t.Context(), n, "a") == nil })
	m := beginMove(t, c, nodes, sessionsKey)
	m.keys()
	m.end()
	refusesToOpen(t, n, "b", fmt.Sprintf("MOVED %d", m.slot))
	for _, s := range nodes {
		if has := s.Client(t).HExists(t.Context(), sessionsKey, "s:b"); has.Err() == nil && has.Val() {
			t.Errorf("%s has the session", s.Addr)
		}
	}
}
