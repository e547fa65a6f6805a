package redisarbiter_test

import (
	"context"
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

// slotMove is a slot that moves from one master of a cluster to another.
type slotMove struct {
	t        *testing.T
	slot     int
	from, to *redistest.Server
	a, b     *redis.Client
	nodes    []*redistest.Server
}

// beginMove opens the slot of a key.
func beginMove(t *testing.T, c *redis.ClusterClient, nodes []*redistest.Server, key string) *slotMove {
	t.Helper()
	m := &slotMove{t: t, nodes: nodes, slot: int(c.ClusterKeySlot(t.Context(), key).Val())}
	master, err := c.MasterForKey(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range nodes {
		if s.Addr == master.Options().Addr {
			m.from = s
		} else {
			m.to = s
		}
	}
	m.a, m.b = m.from.Client(t), m.to.Client(t)
	m.do(m.b, "CLUSTER", "SETSLOT", m.slot, "IMPORTING", m.id(m.a))
	m.do(m.a, "CLUSTER", "SETSLOT", m.slot, "MIGRATING", m.id(m.b))
	return m
}

func (m *slotMove) id(c *redis.Client) string {
	return c.Do(m.t.Context(), "CLUSTER", "MYID").String()[len("cluster myid: "):]
}

func (m *slotMove) do(c *redis.Client, args ...any) {
	m.t.Helper()
	if err := c.Do(m.t.Context(), args...).Err(); err != nil {
		m.t.Fatalf("%v: %v", args, err)
	}
}

// keys moves the keys of the slot.
func (m *slotMove) keys() {
	m.t.Helper()
	names, err := m.a.ClusterGetKeysInSlot(m.t.Context(), m.slot, 1000).Result()
	if err != nil {
		m.t.Fatal(err)
	}
	host, port, _ := strings.Cut(m.to.Addr, ":")
	for _, k := range names {
		if err := m.a.Migrate(m.t.Context(), host, port, k, 0, 5*time.Second).Err(); err != nil {
			m.t.Fatal(err)
		}
	}
}

// end tells all masters whose the slot is.
func (m *slotMove) end() {
	m.t.Helper()
	id := m.id(m.b)
	m.do(m.b, "CLUSTER", "SETSLOT", m.slot, "NODE", id)
	for _, s := range m.nodes {
		m.do(s.Client(m.t), "CLUSTER", "SETSLOT", m.slot, "NODE", id)
	}
}

// A slot that moves: while it is open, calls for one key go on, and so does the verification of a
// key in use. Afterwards the partition is in Grace, because another server wrote its record; all
// others are not.
func TestASlotThatMoves(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	nodes := redistest.StartCluster(t, 3)
	c := redistest.ClusterClient(t, nodes)
	settings := fallback.Settings{Namespace: "ns", Partitions: 8, Grace: 3 * time.Second}
	n := attachTo(t, c, cold, settings)
	const p = 5
	held := id("alice", 1)
	open(t, n, "alice")
	open(t, n, "bob")
	token := lock(t, n, p, "held", held).Token
	row := fallback.Row{Identity: held, Token: token}
	verified := func(when string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		states, err := redisarbiter.Verify(ctx, n, []fallback.Read{{Partition: p, Keys: []string{"held"}, Busy: 1}, {Partition: 1}, {Partition: 2}})
		if err != nil {
			t.Fatalf("%s: Verify: %v", when, err)
		}
		if states[0].Rows[0] != row {
			t.Errorf("%s: the row is %+v", when, states[0].Rows[0])
		}
		for _, s := range states[1:] {
			if s.Record.Grace > 0 {
				t.Errorf("%s: another partition is in Grace", when)
			}
		}
	}
	blocked := func(when string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		a, err := n.Lock(ctx, fallback.LockRequest{Partition: p, Key: "new", Me: id("bob", 2), Block: 1})
		if err == nil && a.Verdict == fallback.Granted {
			t.Errorf("%s: granted", when)
		}
		if err != nil && !strings.Contains(err.Error(), "TRYAGAIN") {
			t.Errorf("%s: %v, want TRYAGAIN", when, err)
		}
	}
	m := beginMove(t, c, nodes, fmt.Sprintf("{ns:p%d}", p))
	verified("the slot is open")
	blocked("the slot is open")
	m.keys()
	verified("its keys have moved")
	blocked("its keys have moved")
	m.end()
	verified("the slot is closed")
	begin := time.Now()
	await.Within(t, patience, "new keys can be locked", func() bool {
		a, err := n.Lock(t.Context(), fallback.LockRequest{Partition: p, Key: "new", Me: id("bob", 3), Block: 1})
		if err != nil || a.Verdict != fallback.Granted {
			return false
		}
		if a.Token <= token {
			t.Errorf("token %d after %d", a.Token, token)
		}
		return true
	})
	t.Logf("new keys of the partition could be locked %v after the slot was closed, with a Grace of %v", time.Since(begin), settings.Grace)
	verified("Grace is over")
	if errs := n.Unlock(t.Context(), []fallback.Release{{Partition: p, Key: "held", Identity: held}}); errs != nil {
		t.Error(errs)
	}
}

// A slot stays open after its key has moved: changes that replicas must have are made where the key
// is, and count there.
func TestASlotThatMoves_WithReplicas(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	nodes := redistest.StartCluster(t, 2, "--repl-diskless-sync-delay", "0")
	followers := make(map[*redistest.Server]*redistest.Server)
	for _, s := range nodes {
		followers[s] = redistest.StartClusterNode(t)
		followers[s].FollowInCluster(t, s)
	}
	c := redistest.ClusterClient(t, nodes)
	n := attachTo(t, c, &redisarbiter.Options{ColdStart: true, Replicas: 1}, fallback.Settings{Namespace: "ns", Partitions: 8, Grace: 3 * time.Second})
	const p = 5
	await.Until(t, "the session opens", func() bool { return enterSession(t.Context(), n, "a") == nil })
	// settled tries again, as nodes do, while a replica that came a moment ago does not answer.
	settled := func(call func() error) (err error) {
		t.Helper()
		await.Until(t, "the replica answers", func() bool { err = call(); return !errors.Is(err, fallback.ErrReplicas) })
		return err
	}
	var r fallback.Renewal
	renew := func() (err error) {
		r, err = n.Renew(t.Context(), "a", fallback.Registration{TTL: time.Minute})
		return err
	}
	m := beginMove(t, c, nodes, sessionsKey)
	m.keys()
	if err := settled(renew); err != nil || !r.Alive {
		t.Errorf("a renewal: %+v, %v", r, err)
	}
	beginMove(t, c, nodes, recordKey(p)).keys()
	var got fallback.Acquisition
	err := settled(func() (err error) {
		got, err = n.Acquire(t.Context(), p, "a", fallback.Expect{})
		return err
	})
	if err != nil || got.Verdict != fallback.InGrace {
		t.Errorf("%+v, %v", got, err)
	}
	followers[m.to].Kill()
	await.Until(t, "the replica is away", func() bool {
		return strings.Contains(m.b.Info(t.Context(), "replication").Val(), "connected_slaves:0\r")
	})
	if err := renew(); !errors.Is(err, fallback.ErrReplicas) {
		t.Errorf("a renewal without the replica: %v", err)
	}
}

// An operator makes a replica the master, without asking the others.
func TestTakeover(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	nodes := redistest.StartCluster(t, 3)
	extra := redistest.StartClusterNode(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	c := redistest.ClusterClient(t, nodes)
	settings := fallback.Settings{Namespace: "ns", Partitions: 8, Grace: 3 * time.Second}
	n := attachTo(t, c, cold, settings)
	const p = 5
	master, err := c.MasterForKey(ctx, fmt.Sprintf("{ns:p%d}", p))
	if err != nil {
		t.Fatal(err)
	}
	a, b := dial(t, master.Options().Addr), extra.Client(t)
	host, port, _ := strings.Cut(master.Options().Addr, ":")
	if err := b.ClusterMeet(ctx, host, port).Err(); err != nil {
		t.Fatal(err)
	}
	m := &slotMove{t: t}
	of := m.id(a)
	await.Within(t, patience, "the replica follows", func() bool { return b.ClusterReplicate(ctx, of).Err() == nil })
	await.Within(t, patience, "the replica has a copy", func() bool {
		text, _ := b.Info(ctx, "replication").Result()
		return strings.Contains(text, "master_link_status:up")
	})
	held := id("alice", 1)
	token := lock(t, n, p, "held", held).Token
	if acks, err := a.Wait(ctx, 1, 5*time.Second).Result(); err != nil || acks != 1 {
		// WAIT is about this connection; a write of its own makes it mean something.
		t.Logf("%d, %v", acks, err)
	}
	a.Set(ctx, fmt.Sprintf("{ns:p%d}:x", p), "x", 0)
	a.Wait(ctx, 1, 5*time.Second)
	m.do(b, "CLUSTER", "FAILOVER", "TAKEOVER")
	await.Within(t, patience, "the row is verified at the new master, in Grace", func() bool {
		states, err := redisarbiter.Verify(ctx, n, []fallback.Read{{Partition: p, Keys: []string{"held"}, Busy: 1}})
		return err == nil && states[0].Record.Grace > 0 && states[0].Rows[0] == (fallback.Row{Identity: held, Token: token})
	})
	await.Within(t, patience, "keys can be locked when Grace is over", func() bool {
		x, err := n.Lock(ctx, fallback.LockRequest{Partition: p, Key: "new", Me: id("bob", 1), Block: 1})
		return err == nil && x.Verdict == fallback.Granted && x.Token > token
	})
}

// Verify of an owner's partitions is one script per server of a cluster, however many they are.
func TestVerifyOfManyIsOneScriptPerServer(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	nodes := redistest.StartCluster(t, 3)
	n := attachTo(t, redistest.ClusterClient(t, nodes), cold, fallback.Settings{Namespace: "ns", Partitions: 300, Grace: time.Hour})
	var reads []fallback.Read
	for p := range uint32(300) {
		reads = append(reads, fallback.Read{Partition: p})
	}
	scripts := func() (total int) {
		for _, s := range nodes {
			text, err := s.Client(t).Info(t.Context(), "commandstats").Result()
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"cmdstat_evalsha", "cmdstat_eval"} {
				var n int
				_, _ = fmt.Sscanf(redisarbiter.ParseInfo(text)[name], "calls=%d,", &n)
				total += n
			}
		}
		return total
	}
	before := scripts()
	states, err := redisarbiter.Verify(t.Context(), n, reads)
	if err != nil {
		t.Fatal(err)
	}
	if n := scripts() - before; n != len(nodes) {
		t.Errorf("%d scripts for %d partitions on %d servers", n, len(reads), len(nodes))
	}
	for p, s := range states {
		if s.Record.Epoch == 0 || s.Record.Grace > 0 || s.Record.Owner != "" {
			t.Errorf("partition %d: %+v", p, s.Record)
		}
	}
}

// A server that is gone says no more that its slots have moved: the call that finds it gone asks
// the others, and is answered when it is tried again.
func TestCluster_AServerIsGone(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	nodes := redistest.StartCluster(t, 3)
	c := redistest.ClusterClient(t, nodes)
	o := *c.Options()
	o.MinRetryBackoff, o.MaxRetryBackoff = 200*time.Millisecond, 200*time.Millisecond // for the others' answer
	patient := redis.NewClusterClient(&o)
	t.Cleanup(func() { _ = patient.Close() })
	n := attachTo(t, patient, cold, fallback.Settings{Namespace: "ns", Partitions: 2, Grace: 3 * time.Second})
	if err := enterSession(t.Context(), n, "a"); err != nil {
		t.Fatal(err)
	}
	m := beginMove(t, c, nodes, sessionsKey)
	m.keys()
	m.end()
	m.from.Kill()
	if r, err := n.Renew(t.Context(), "a", fallback.Registration{TTL: 10 * time.Second}); err != nil || !r.Alive {
		t.Errorf("%+v, %v", r, err)
	}
}
