package redisquorum

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

func TestMain(m *testing.M) {
	redis.SetLogger(mute{}) // servers are killed
	goleak.VerifyTestMain(m)
}

type mute struct{}

func (mute) Printf(context.Context, string, ...any) {}

// quorum is some servers, which keep nothing when they end.
type quorum struct {
	t       *testing.T
	servers []*redistest.Server
	clocks  []redistest.Clock // as servers; nil: they have the machine's
	ahead   []time.Duration   // those are
	watch   *store            // of members
}

func startQuorum(t *testing.T, n int, args ...string) *quorum {
	t.Helper()
	q := &quorum{t: t}
	for range n {
		q.servers = append(q.servers, redistest.Start(t, args...))
	}
	return q
}

// clock starts n more servers, each with a clock of its own.
func (q *quorum) clock(n int) {
	q.t.Helper()
	for range n {
		s, c := redistest.StartClocked(q.t)
		q.servers, q.clocks, q.ahead = append(q.servers, s), append(q.clocks, c), append(q.ahead, 0)
	}
}

// step steps the clock of a server.
func (q *quorum) step(i int, by time.Duration) {
	q.t.Helper()
	q.ahead[i] += by
	if err := q.clocks[i].Set(q.ahead[i]); err != nil {
		q.t.Error(err)
	}
}

func (q *quorum) clients() (all []*redis.Client) {
	for _, s := range q.servers {
		all = append(all, s.Client(q.t))
	}
	return all
}

// restart kills a server, and starts it again.
func (q *quorum) restart(i int) {
	q.servers[i].Kill()
	if err := q.servers[i].Restart(); err != nil {
		q.t.Error(err)
	}
}

// members returns how many servers are members of one generation.
func (q *quorum) members() (n int) {
	if q.watch == nil {
		q.watch = newStore(q.clients(), nil)
	}
	all, errs := q.watch.marks(context.Background())
	name, _ := alive(all, errs)
	for _, m := range all {
		if name != "" && m.member() && m.generation == name {
			n++
		}
	}
	return n
}

var new3 = &Options{ColdStart: true}

func TestQuorumConforms(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	shared := startQuorum(t, 3)
	arbitertest.Run(t, arbitertest.Fixture{
		New:       func(*testing.T) fallback.Arbiter { return New(shared.clients(), new3) },
		NewServer: another,
	})
}

// another is a quorum of one test only. It is another server when a majority has forgotten, and
// then when all have.
func another(t *testing.T) arbitertest.Server {
	q := &quorum{t: t}
	x := arbitertest.Server{AlwaysEmpty: "servers that have started again answer with nothing of before, whatever they have on disk: docs/quorum.md"}
	if _, err := exec.LookPath("cc"); err != nil {
		q = startQuorum(t, 3)
		x.NoStep = "no C compiler: the servers have the machine's clock"
	} else {
		q.clock(3)
		x.Step = func(by time.Duration) {
			for i := range q.servers {
				q.step(i, by)
			}
		}
	}
	x.Arbiter = New(q.clients(), new3)
	crashes := 0
	x.Crash = func() {
		crashes++
		for i := range 2 + (crashes+1)%2 {
			if crashes == 1 { // they come back with all that they had, and later with that
				if err := q.servers[i].Client(t).Save(t.Context()).Err(); err != nil {
					t.Error(err)
				}
			}
			q.restart(i)
		}
		s := newStore(q.clients(), nil)
		await.Until(t, "the servers answer", func() bool { return s.Open(t.Context()) == nil })
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	return x
}

// One server after another loses all that it has, and is admitted again. Nothing is lost.
func TestQuorum_ServersThatForget(t *testing.T) {
	takes.Seconds(t)
	for _, n := range []int{3, 5} {
		q := startQuorum(t, n)
		s := newStore(q.clients(), nil)
		if err := s.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		version, value := "", ""
		for round := range 2 * n {
			look, err := s.Load(t.Context(), []string{"a", "never"})
			if err != nil {
				t.Fatal(err)
			}
			if v := look.Values[0]; v.Version != version || string(v.Value) != value {
				t.Fatalf("%d servers, after %d losses: %q, want %q", n, round, v.Value, value)
			}
			value += "x"
			if done, err := s.Swap(t.Context(), look.Server, []fallback.Change{{Key: "a", Version: version, Value: []byte(value)}}); err != nil || !done[0] {
				t.Fatal(done, err)
			}
			if done, err := s.Swap(t.Context(), look.Server, []fallback.Change{{Key: "a", Version: version, Value: []byte("no")}}); err != nil || done[0] {
				t.Fatalf("from a version that is over: %v, %v", done, err)
			}
			if look, err = s.Load(t.Context(), []string{"a"}); err != nil {
				t.Fatal(err)
			}
			version = look.Values[0].Version
			if round%3 == 2 {
				if err := q.servers[round%n].Client(t).FlushAll(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
			} else {
				q.restart(round % n)
			}
			await.Until(t, "the server is a member again", func() bool {
				_, err := s.Load(t.Context(), []string{"a"}) // which finds it missing
				return err == nil && q.members() == n
			})
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// If a majority has forgotten, all is lost, and said so: the server is another one, and no record
// that was read before can be written to it.
func TestQuorum_AMajorityForgets(t *testing.T) {
	t.Parallel()
	q := startQuorum(t, 3)
	s := newStore(q.clients(), nil)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before, err := s.Load(t.Context(), []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Swap(t.Context(), before.Server, []fallback.Change{{Key: "a", Value: []byte("1")}}); err != nil {
		t.Fatal(err)
	}
	q.restart(0)
	q.restart(2)
	var after fallback.Look
	await.Until(t, "the servers begin anew", func() bool {
		after, err = s.Load(t.Context(), []string{"a"})
		return err == nil
	})
	if after.Server == before.Server || after.Values[0].Version != "" {
		t.Errorf("before %+v, after %+v", before, after)
	}
	if done, err := s.Swap(t.Context(), before.Server, []fallback.Change{{Key: "b", Value: []byte("1")}}); err != nil || done[0] {
		t.Errorf("%v, %v", done, err)
	}
	await.Until(t, "all are members", func() bool {
		_, err := s.Load(t.Context(), []string{"a"})
		return err == nil && q.members() == 3
	})
}

// After such a loss nothing is granted: a lock of before may be in force.
func TestQuorum_Grace(t *testing.T) {
	t.Parallel()
	q := startQuorum(t, 3)
	n, err := New(q.clients(), new3).Attach(t.Context(), fallback.Settings{Namespace: "ns", Partitions: 4, Grace: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}()
	lock := func(session string) (a fallback.LockAnswer) {
		await.Until(t, "the servers answer", func() bool {
			a, err = n.Lock(t.Context(), fallback.LockRequest{Key: "k", Me: fallback.Identity{Session: session, Request: 1}, Block: 1})
			return err == nil
		})
		return a
	}
	if a := lock("alice"); a.Verdict != fallback.Granted {
		t.Fatalf("%+v", a)
	}
	q.restart(0)
	if a := lock("bob"); a.Verdict != fallback.Held || a.Holder.Session != "alice" {
		t.Errorf("a minority has forgotten: %+v", a)
	}
	await.Until(t, "it is a member again", func() bool { return q.members() == 3 })
	q.restart(0)
	q.restart(1)
	if a := lock("bob"); a.Verdict != fallback.InGrace || a.Record.Grace == 0 {
		t.Errorf("a majority has forgotten: %+v", a)
	}
}

func TestQuorum_AMinorityIsAway(t *testing.T) {
	takes.Seconds(t)
	q := startQuorum(t, 3)
	s := newStore(q.clients(), nil)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	q.servers[1].Kill()
	look, err := s.Load(t.Context(), []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	if done, err := s.Swap(t.Context(), look.Server, []fallback.Change{{Key: "a", Value: []byte("1")}}); err != nil || !done[0] {
		t.Fatal(done, err)
	}
	q.servers[2].Kill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := s.Load(ctx, []string{"a"}); err == nil {
		t.Error("one of three servers has answered for all")
	}
	if err := q.servers[1].Restart(); err != nil {
		t.Fatal(err)
	}
	if look, err := s.Load(t.Context(), []string{"a"}); err == nil && look.Values[0].Version == "" && look.Server == s.name {
		t.Errorf("a server that has forgotten, and one that knows, have answered: %+v", look)
	}
}

func TestQuorum_Mistakes(t *testing.T) {
	t.Parallel()
	q := startQuorum(t, 3)
	c := q.clients()
	evicts := redistest.Start(t, "--maxmemory-policy", "allkeys-lru").Client(t)
	node := redistest.StartClusterNode(t).Client(t)
	for _, tt := range []struct {
		clients []*redis.Client
		says    string
	}{
		{nil, "0 clients"},
		{c[:2], "2 clients"},
		{[]*redis.Client{c[0], c[1], nil}, "client 3"},
		{[]*redis.Client{c[0], c[1], c[0]}, "clients 1 and 3"},
		{[]*redis.Client{c[0], c[1], evicts}, "noeviction"},
		{[]*redis.Client{c[0], node, c[1]}, "Redis Cluster"},
	} {
		err := newStore(tt.clients, nil).Open(t.Context())
		if !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("want %q: %v", tt.says, err)
		}
	}
}

func TestQuorum_WhatItCostsAtRest(t *testing.T) {
	storetest.Minutes(t)
	storetest.AtRest(t, newStore(startQuorum(t, 3).clients(), nil), &fallback.RecordsOptions{NoClock: true, ColdStart: true})
}
