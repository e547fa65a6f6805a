package redisarbiter_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// follow starts a replica, and waits until it has all, and its primary knows.
func follow(t testing.TB, primary *redistest.Server, args ...string) *redistest.Server {
	t.Helper()
	replica := redistest.Start(t, args...)
	if err := replica.Replicate(t.Context(), primary); err != nil {
		t.Fatal(err)
	}
	c := replica.Client(t)
	await.Until(t, "the replica has all", func() bool {
		return strings.Contains(c.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	p := primary.Client(t)
	await.Until(t, "the primary counts it", func() bool {
		there := strings.Count(p.Info(t.Context(), "replication").Val(), "state=online")
		pipe := p.Pipeline()
		pipe.Set(t.Context(), "written", 1, 0)
		acks := pipe.Do(t.Context(), "WAIT", there, 1000)
		_, err := pipe.Exec(t.Context())
		n, _ := acks.Int()
		return err == nil && there > 0 && n == there
	})
	return replica
}

var (
	always   = []string{"--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0"}
	replicas = fallback.Settings{Namespace: "ns", Partitions: 2, Grace: 12 * time.Second, Lease: time.Minute}
)

// enterSession opens a session.
func enterSession(ctx context.Context, n fallback.Namespace, id string) error {
	_, err := n.Open(ctx, id, fallback.Registration{TTL: 10 * time.Second})
	return err
}

// onAll is the kind of namespace that these tests are about.
var onAll = &redisarbiter.Options{ColdStart: true, AllReplicas: 1}

// ofTable tells which stories are about the table.
func ofTable(story string) bool {
	return strings.Contains(story, "round") || strings.Contains(story, "session")
}

// aboutSessions are the moves that are about the table.
var aboutSessions = []move{
	(*twins).open, (*twins).open, (*twins).open, (*twins).renew, (*twins).renew, (*twins).renew, (*twins).renew, (*twins).list, (*twins).dead, (*twins).bury,
	(*twins).closeSession, (*twins).changeSessionsServer, (*twins).changeSessionsServer, (*twins).renameSessionsServer, (*twins).loseSessions,
	(*twins).endSessionsGrace, (*twins).expire, (*twins).stepBackSessions, (*twins).roundLapses,
}

func TestMemoryAndRedisWithAllReplicasDoTheSame(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	x := newTwins(t, onAllPatiently)
	for _, s := range stories {
		if ofTable(s.name) {
			x.deck = []move{s.move}
			x.check(t, []byte{0})
		}
	}
	x.checkRandomly(t, aboutSessions)
}

// A session counts once all replicas have it, and each error names the missing part.
func TestAllReplicas_WhatAnOpeningNeeds(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	s := redistest.Start(t, always...)
	c := s.Client(t)
	one := attachTo(t, c, onAllShortly, replicas)
	refusesToOpen(t, one, "a", "AllReplicas): 0 of 1")
	first := follow(t, s, always...)
	await.Until(t, "it opens with one", func() bool { return enterSession(t.Context(), one, "a") == nil })
	second := follow(t, s, always...)
	await.Until(t, "it opens with two", func() bool { return enterSession(t.Context(), one, "b") == nil })
	if err := second.Signal(syscall.SIGSTOP); err != nil { // it is connected, and has nothing
		t.Fatal(err)
	}
	refusesToOpen(t, one, "c", "1 of 2")
	second.Kill()
	await.Until(t, "it is gone", func() bool { return strings.Contains(c.Info(t.Context(), "replication").Val(), "connected_slaves:1") })
	for _, id := range []string{"a", "b"} {
		if n := first.Client(t).HExists(t.Context(), sessionsKey, "s:"+id); !n.Val() {
			t.Errorf("the replica lacks %s", id)
		}
	}
	for _, x := range [][3]string{{"no-appendfsync-on-rewrite", "yes", "no"}, {"appendfsync", "everysec", "always"}, {"appendonly", "no", "yes"}} {
		if err := c.ConfigSet(t.Context(), x[0], x[1]).Err(); err != nil {
			t.Fatal(err)
		}
		if err := enterSession(t.Context(), one, "d"); !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), x[0]) {
			t.Errorf("its disk is late: %v", err)
		}
		if err := c.ConfigSet(t.Context(), x[0], x[2]).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"c", "d"} {
		if c.HExists(t.Context(), sessionsKey, "s:"+id).Val() {
			t.Errorf("a session that could not be opened is left: %s", id)
		}
	}
	if _, err := one.Renew(t.Context(), "b", fallback.Registration{TTL: 10 * time.Second}); err != nil { // it counts already
		t.Errorf("a renewal: %v", err)
	}
}

// A namespace stays as it was made. Processes of another kind look at it, and open no session in
// it.
func TestAllReplicas_NamespacesStayAsTheyWereMade(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	s := redistest.Start(t, always...)
	c := s.Client(t)
	follow(t, s, always...)
	attach := func(name string, o redisarbiter.Options) (fallback.Namespace, error) {
		o.ColdStart = true
		settings := replicas
		settings.Namespace = name
		n, err := redisarbiter.New(c, &o).Attach(t.Context(), settings)
		if err == nil {
			t.Cleanup(func() { _ = n.Close() })
		}
		return n, err
	}
	if _, err := attach("all", redisarbiter.Options{AllReplicas: 1}); err != nil {
		t.Fatal(err)
	}
	n, err := attach("all", redisarbiter.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.List(t.Context()); err != nil {
		t.Errorf("a process that looks: %v", err)
	}
	if err := enterSession(t.Context(), n, "a"); !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), "Options.AllReplicas") {
		t.Errorf("without the option: %v", err)
	}
	if _, err := attach("usual", redisarbiter.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := attach("observed", redisarbiter.Options{ObserverClock: true}); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name string
		opts redisarbiter.Options
		is   error
		says string
	}{
		{"usual", redisarbiter.Options{AllReplicas: 1}, fallback.ErrMismatch, "was made with neither"},
		{"observed", redisarbiter.Options{AllReplicas: 1}, fallback.ErrMismatch, "was made with Options.ObserverClock"},
		{"all", redisarbiter.Options{ObserverClock: true}, fallback.ErrMismatch, "was made with Options.AllReplicas"},
		{"all", redisarbiter.Options{AllReplicas: 1, ObserverClock: true}, fallback.ErrRefused, "has one of them"},
		{"all", redisarbiter.Options{AllReplicas: -1}, fallback.ErrRefused, "Options.AllReplicas is -1"},
	} {
		if _, err := attach(x.name, x.opts); !errors.Is(err, x.is) || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s, %+v: %v", x.name, x.opts, err)
		}
	}
}

// A process that made its namespace in the usual way does not renew in one that another process
// made anew, for all replicas.
func TestAllReplicas_LostAndMadeAnew(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	s := redistest.Start(t, always...)
	c := s.Client(t)
	follow(t, s, always...)
	plain := attachTo(t, c, &redisarbiter.Options{ColdStart: true}, replicas)
	if err := enterSession(t.Context(), plain, "a"); err != nil {
		t.Fatal(err)
	}
	if err := c.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	attachTo(t, c, &redisarbiter.Options{ColdStart: true, AllReplicas: 1}, replicas)
	if _, err := plain.Renew(t.Context(), "a", fallback.Registration{TTL: 10 * time.Second}); !errors.Is(err, fallback.ErrMismatch) || !strings.Contains(err.Error(), "made anew with Options.AllReplicas") {
		t.Errorf("%v", err)
	}
}

// Each entry would be waited for after a failover: renewals sweep those that have expired, in some
// seconds. Without the option an opening does.
func TestAllReplicas_RenewalsSweepNowAndThen(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	for _, opts := range []*redisarbiter.Options{cold, onAll} {
		s, clock := redistest.StartClocked(t, always...)
		c := s.Client(t)
		follow(t, s, always...)
		n := attachTo(t, c, opts, replicas)
		openSession(t, n, "a")
		for second, swept := range map[int64]bool{5: false, 0: opts == onAll} {
			is := false
			await.Within(t, patience, "a renewal within that second", func() bool {
				now := time.Now()
				err := errors.Join(clock.Set(time.Unix((now.Unix()/16+1)*16+second, 0).Sub(now)), c.HSet(t.Context(), sessionsKey, "s:brief", "1 10000 ").Err())
				if _, err2 := n.Renew(t.Context(), "a", fallback.Registration{TTL: time.Hour}); err != nil || err2 != nil {
					t.Fatal(err, err2)
				}
				is = !c.HExists(t.Context(), sessionsKey, "s:brief").Val()
				return c.Time(t.Context()).Val().Unix()%16 == second
			})
			if is != swept {
				t.Errorf("AllReplicas is %d, in second %d: swept: %t, want %t", opts.AllReplicas, second, is, swept)
			}
		}
	}
}

// A renewal that makes an entry anew counts once the replicas have it. If its answer is lost, that
// goes for the next one, too, be it the client's own repetition.
func TestAllReplicas_TheAnswerThatAnEntryWasMissingIsLost(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	s := redistest.Start(t, always...)
	replica := follow(t, s, always...)
	proxy := redistest.StartProxy(t, s.Addr)
	c := dial(t, proxy.Addr)
	n := attachTo(t, c, onAllShortly, replicas)
	await.Until(t, "it is opened", func() bool { return enterSession(t.Context(), n, "a") == nil })
	reg := fallback.Registration{TTL: 10 * time.Second}
	renew := func() (err error) {
		var a fallback.Renewal
		if a, err = n.Renew(t.Context(), "a", reg); err == nil {
			reg.Seen = a.Expiry
		}
		return err
	}
	if err := renew(); err != nil {
		t.Fatal(err)
	}
	if err := replica.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := renew(); err != nil {
		t.Errorf("a renewal of an entry that the replicas have waits for them: %v", err)
	}
	if err := s.Client(t).HDel(t.Context(), sessionsKey, "s:a").Err(); err != nil {
		t.Fatal(err)
	}
	proxy.Lose("evalsha")
	for range 3 {
		if err := renew(); err == nil {
			t.Fatal("it counts, and no replica has it")
		}
	}
	if proxy.Lost.Load() != 1 {
		t.Errorf("%d answers were lost", proxy.Lost.Load())
	}
	if err := replica.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "it is renewed", func() bool { return renew() == nil })
	if n := replica.Client(t).HExists(t.Context(), sessionsKey, "s:a"); !n.Val() {
		t.Error("the replica lacks it")
	}
}

// A replica that is promoted knows each session, whatever it lacks. A round is complete once each
// has spoken, in Grace of the table, too.
func TestAllReplicas_Promoted(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	s := redistest.Start(t, always...)
	replica := follow(t, s, always...)
	o := &redisarbiter.Options{ColdStart: true, AllReplicas: 1}
	old := attachTo(t, s.Client(t), o, replicas)
	for _, id := range []string{"a", "b"} {
		await.Until(t, "it is opened", func() bool { return enterSession(t.Context(), old, id) == nil })
	}
	if err := replica.Replicate(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	follow(t, replica, always...)
	now := attachTo(t, replica.Client(t), o, replicas)
	turn := func(id string, r fallback.RoundCall) fallback.Renewal {
		t.Helper()
		var a fallback.Renewal
		await.Until(t, "it is answered", func() (ok bool) { // the replica may just have connected
			var err error
			a, err = now.Renew(t.Context(), id, fallback.Registration{TTL: 10 * time.Second, Round: r})
			return err == nil
		})
		if a.Grace == 0 {
			t.Fatalf("%+v", a)
		}
		return a
	}
	turn("a", fallback.RoundCall{Begin: "r1"})
	if a := turn("a", fallback.RoundCall{Spoke: "r1", Ask: true}); a.Round.Complete {
		t.Error("it is complete without b")
	}
	if a := turn("b", fallback.RoundCall{Spoke: "r1", Ask: true}); !a.Round.Complete {
		t.Errorf("it is not complete: %+v", a)
	}
	if a := turn("c", fallback.RoundCall{Ask: true}); a.Round.Complete || a.Round.Name != "" {
		t.Errorf("a table that lacked c is complete: %+v", a)
	}
}
