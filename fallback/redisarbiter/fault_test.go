package redisarbiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// A full server takes nothing new, but lets all sessions renew, look, and give back.
func TestServerAtMaxmemory(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--maxmemory-policy", "noeviction", "--enable-debug-command", "yes")
	c := s.Client(t)
	n := attach(t, c, cold)
	open(t, n, "alice")
	// Each operation is the first to see that the server has another name, and notes that in its
	// record.
	rename := func() {
		if err := c.Do(t.Context(), "DEBUG", "CHANGE-REPL-ID").Err(); err != nil {
			t.Fatal(err)
		}
	}
	held := lock(t, n, 0, "held", id("alice", 1))
	waiting, err := n.Lock(t.Context(), fallback.LockRequest{Key: "held", Me: id("bob", 1), Block: 1, Wait: true})
	if err != nil || waiting.Verdict != fallback.Held {
		t.Fatalf("Lock: %+v, %v", waiting, err)
	}
	r, err := n.Load(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	owned, err := n.Acquire(t.Context(), 1, "alice", fallback.Expect{Epoch: r.Epoch})
	if err != nil || owned.Verdict != fallback.Granted {
		t.Fatalf("Acquire: %+v, %v", owned, err)
	}
	epoch := owned.Record.Epoch
	adopted := fallback.Row{Identity: id("bob", 2), Token: fallback.MakeToken(epoch, 1)}

	if err := c.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}

	second, err := redisarbiter.New(s.Client(t), nil).Attach(t.Context(), plain)
	if err != nil {
		t.Errorf("a second process: %v", err)
	} else {
		_ = second.Close()
	}
	for _, q := range []fallback.LockRequest{
		{Key: "new", Me: id("bob", 3), Block: 1},
		{Key: "held", Me: id("bob", 4), Block: 1, Wait: true},
	} {
		if a, err := n.Lock(t.Context(), q); !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), "maxmemory") {
			t.Errorf("Lock of %q: got %+v, %v, want ErrRefused that names maxmemory", q.Key, a, err)
		}
	}
	if _, err := n.(fallback.ResultStore).SaveResult(t.Context(), 0, "k", []byte("v"), uint64(held.Token), time.Hour); !errors.Is(err, fallback.ErrFull) {
		t.Errorf("SaveResult: got %v, want ErrFull", err)
	}
	if a := lock(t, n, 0, "held", id("alice", 1)); a.Verdict != fallback.Granted || a.Token != held.Token {
		t.Errorf("Lock repeated by the holder: got %+v, want the same token", a)
	}
	for what, f := range map[string]func() error{
		"Renew": func() error {
			r, err := n.Renew(t.Context(), "alice", fallback.Registration{TTL: time.Hour})
			return wrong(err, r.Alive)
		},
		"Open": func() error {
			r, err := n.Open(t.Context(), "bob", fallback.Registration{TTL: time.Hour})
			return wrong(err, r.Alive)
		},
		"Dead": func() error {
			l, err := n.Dead(t.Context(), "alice", fallback.Stamp{})
			return wrong(err, !l.Dead)
		},
		"Load": func() error {
			r, err := n.Load(t.Context(), 1)
			return wrong(err, r.Owner == "alice")
		},
		"Verify": func() error {
			s, err := redisarbiter.Verify(t.Context(), n, []fallback.Read{{Keys: []string{"held"}}, {Partition: 1}})
			return wrong(err, len(s) == 2 && s[0].Rows[0].Token == held.Token)
		},
		"Adopt": func() error {
			v, err := redisarbiter.Adopt(t.Context(), n, 1, "k", adopted)
			return wrong(err, v == fallback.Granted)
		},
		"ReclaimOwner": func() error {
			v, err := redisarbiter.ReclaimOwner(t.Context(), n, 1, "alice", epoch)
			return wrong(err, v == fallback.Granted)
		},
		"Revoke": func() error { return n.Revoke(t.Context(), 1, epoch, "") },
		"SaveResult of an observer": func() error {
			v, err := n.(fallback.ResultStore).SaveResult(t.Context(), 0, "observer", []byte("card"), 1, time.Hour)
			return wrong(err, v == fallback.Granted)
		},
		"Witness": func() error {
			_, err := n.Witness(t.Context(), 1, fallback.MakeToken(epoch, 0))
			return err
		},
		"Bury": func() error {
			b, err := n.(fallback.Burier).Bury(t.Context(), "alice", 7, []string{"bob"})
			return wrong(err, b.Left > 0)
		},
	} {
		rename()
		if err := f(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	rename()
	d, err := n.Demote(t.Context(), 1, "alice", epoch, map[string]fallback.Row{"k": adopted})
	if err != nil || d.Verdict != fallback.Granted {
		t.Errorf("Demote: got %+v, %v, want granted", d, err)
	}
	rename()
	if err := errors.Join(n.Unlock(t.Context(), []fallback.Release{{Key: "held", Identity: id("alice", 1)}, {Partition: 1, Key: "k", Identity: adopted.Identity}})...); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	rename()
	if err := n.CloseSession(t.Context(), "alice"); err != nil {
		t.Errorf("CloseSession: %v", err)
	}
	states, err := redisarbiter.Verify(t.Context(), n, []fallback.Read{{Keys: []string{"held"}}, {Partition: 1, Keys: []string{"k"}}})
	if err != nil || states[0].Rows[0] != (fallback.Row{}) || states[1].Rows[0] != (fallback.Row{}) {
		t.Errorf("rows after Unlock: %+v, %v", states, err)
	}
}

// wrong is err, or that an answer is not as it should be.
func wrong(err error, ok bool) error {
	if err == nil && !ok {
		err = errors.New("wrong answer")
	}
	return err
}

// A server forgets scripts when it is told to, and when it restarts.
func TestScriptsAreLoadedAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	n := attach(t, c, cold)
	everything := func() {
		t.Helper()
		a := lock(t, n, 0, "k", id("alice", 1))
		b := lock(t, n, 1, "k", id("alice", 2))
		if a.Verdict != fallback.Granted || b.Verdict != fallback.Granted {
			t.Errorf("Lock: got %v and %v, want granted", a.Verdict, b.Verdict)
		}
		releases := []fallback.Release{{Key: "k", Identity: id("alice", 1)}, {Partition: 1, Key: "k", Identity: id("alice", 2)}}
		if err := errors.Join(n.Unlock(t.Context(), releases)...); err != nil {
			t.Error(err)
		}
		s, err := redisarbiter.Verify(t.Context(), n, []fallback.Read{{Keys: []string{"k"}}, {Partition: 1, Keys: []string{"k"}}, {Partition: 2}})
		if err != nil || len(s) != 3 || s[0].Rows[0].Token != 0 || s[1].Rows[0].Token != 0 {
			t.Errorf("Verify: got %+v, %v", s, err)
		}
		if _, err := n.Renew(t.Context(), "alice", fallback.Registration{TTL: time.Hour}); err != nil {
			t.Error(err)
		}
	}
	everything()
	for range 2 {
		if err := c.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		everything()
	}
	// Some of a batch are known, others are not.
	if err := c.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	lock(t, n, 0, "k", id("alice", 1))
	everything()

	restart(t, s)
	if a := lock(t, n, 0, "k", id("alice", 1)); a.Verdict != fallback.InGrace {
		t.Errorf("Lock after the restart: got %v, want in grace", a.Verdict)
	}
	if _, err := n.Renew(t.Context(), "alice", fallback.Registration{TTL: time.Hour}); err != nil {
		t.Error(err)
	}
}

// The client library reads until its own timeout, whatever the context says. A call must not, nor
// Close.
func TestNothingWaitsForASilentServer(t *testing.T) {
	t.Parallel()
	for _, direct := range []bool{false, true} {
		t.Run(fmt.Sprintf("client heeds contexts %t", direct), func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			c := dial(t, s.Addr, func(o *redis.Options) {
				o.ReadTimeout, o.DialTimeout = patience, patience // longer than any machine is slow
				if direct {
					o.ContextTimeoutEnabled, o.MaxRetries = true, -1
				}
			})
			n := attach(t, c, cold)
			use(t, n)
			var calls inside
			c.AddHook(&calls)
			if err := s.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			for what, f := range map[string]func(context.Context) error{
				"Lock": func(ctx context.Context) error {
					_, err := n.Lock(ctx, fallback.LockRequest{Key: "k", Me: id("alice", 1), Block: 1})
					return err
				},
				"Verify": func(ctx context.Context) error {
					_, err := redisarbiter.Verify(ctx, n, []fallback.Read{{}, {Partition: 1}})
					return err
				},
				"Verify of many": func(ctx context.Context) error {
					_, err := redisarbiter.Verify(ctx, n, make([]fallback.Read, 2*redisarbiter.PlainFrom))
					return err
				},
				"Listen": func(ctx context.Context) error {
					_, err := n.Listen(ctx, "alice", func(fallback.Message) {})
					return err
				},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
				begin := time.Now()
				err := f(ctx)
				// A client that heeds contexts has words of its own for it.
				if err == nil || !direct && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: got %v, want context.DeadlineExceeded", what, err)
				}
				if late := time.Since(begin); late > patience/2 {
					t.Errorf("%s: ended after %v, its context after 30ms", what, late)
				}
				cancel()
			}
			begin := time.Now()
			if err := n.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			defer cancel()
			if _, err := redisarbiter.New(c, nil).Attach(ctx, fallback.Settings{Namespace: "silent", Partitions: 1, Grace: time.Hour}); err == nil {
				t.Error("Attach: no error")
			}
			if late := time.Since(begin); late > patience/2 {
				t.Errorf("Close and Attach ended after %v", late)
			}
			// A call that was given up ends when the client does.
			if err := s.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			await.Within(t, patience, "no call is under way", func() bool { return calls.Load() == 0 })
		})
	}
}

// inside is a hook that counts the calls under way.
type inside struct {
	nothingHooked
	atomic.Int64
}

func (n *inside) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		n.Add(1)
		defer n.Add(-1)
		return next(ctx, cmd)
	}
}

func (n *inside) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		n.Add(1)
		defer n.Add(-1)
		return next(ctx, cmds)
	}
}

// The server executes a request, its reply is lost, and the client library sends the request once
// more: the second execution must not take the first one's work for another's.
func TestRequestWhoseReplyWasLostIsRepeated(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := redistest.StartProxy(t, s.Addr)
	n := attach(t, dial(t, proxy.Addr), cold)
	direct := attach(t, s.Client(t), cold)

	lost := func(what string, f func() error) {
		t.Helper()
		for _, twice := range []bool{false, true} { // the first time SCRIPT LOAD comes before
			before := proxy.Lost.Load()
			if twice {
				proxy.Lose("evalsha")
			}
			if err := f(); err != nil {
				t.Errorf("%s, reply lost %t: %v", what, twice, err)
			}
			if got := proxy.Lost.Load() - before; twice != (got == 1) {
				t.Errorf("%s: %d replies were lost", what, got)
			}
		}
	}
	record := func(p uint32) fallback.Record {
		r, err := direct.Load(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	row := func(p uint32, key string) fallback.Row {
		s, err := redisarbiter.Verify(t.Context(), direct, []fallback.Read{{Partition: p, Keys: []string{key}}})
		if err != nil {
			t.Fatal(err)
		}
		return s[0].Rows[0]
	}

	request := uint64(0)
	lost("Open", func() error {
		request++
		r, err := n.Open(t.Context(), fmt.Sprint("alice", request), fallback.Registration{TTL: time.Hour})
		return wrong(err, r.Alive)
	})
	lost("Renew", func() error {
		r, err := n.Renew(t.Context(), "alice1", fallback.Registration{TTL: time.Hour})
		return wrong(err, r.Alive)
	})
	lost("Rotate", func() error {
		kept := func() (keys []string) {
			for i, text := range strings.Fields(s.Client(t).HGet(t.Context(), "{ns:s}", "k").Val()) {
				if i%2 == 0 { // else it is the time of the one before
					keys = append(keys, text)
				}
			}
			return keys
		}
		before := kept()
		err := n.Rotate(t.Context())
		after := kept()
		return wrong(err, len(after) > 1 && slices.Equal(after[1:], before[:min(len(before), 2)]))
	})
	lost("Lock", func() error {
		request++
		me := id("alice", request)
		a, err := n.Lock(t.Context(), fallback.LockRequest{Key: fmt.Sprint("key ", request), Me: me, Block: 5})
		return wrong(err, a.Verdict == fallback.Granted && a.Token == row(0, fmt.Sprint("key ", request)).Token)
	})
	lost("Lock by eviction", func() error {
		lock(t, direct, 0, fmt.Sprint("key ", request), id("ghost", request))
		victim := row(0, fmt.Sprint("key ", request)).Identity
		request++
		a, err := n.Lock(t.Context(), fallback.LockRequest{Key: fmt.Sprint("key ", request-1), Me: id("bob", request), Block: 1, Evict: victim})
		return wrong(err, a.Verdict == fallback.Granted)
	})
	lost("Unlock", func() error {
		request++
		me := id("alice", request)
		lock(t, direct, 0, "once", me)
		err := errors.Join(n.Unlock(t.Context(), []fallback.Release{{Key: "once", Identity: me}})...)
		return wrong(err, row(0, "once") == fallback.Row{})
	})
	lost("Unlock of many", func() error {
		var releases []fallback.Release
		for p := range uint32(3) {
			request++
			lock(t, direct, p, "once", id("alice", request))
			releases = append(releases, fallback.Release{Partition: p, Key: "once", Identity: id("alice", request)})
		}
		err := errors.Join(n.Unlock(t.Context(), releases)...)
		return wrong(err, row(0, "once").Token+row(1, "once").Token+row(2, "once").Token == 0)
	})
	for p := range uint32(2) { // the first needs SCRIPT LOAD
		if p == 1 {
			proxy.Lose("evalsha")
		}
		before := record(p)
		a, err := n.Acquire(t.Context(), p, "alice", fallback.Expect{Epoch: before.Epoch})
		if err != nil || a.Verdict != fallback.Granted || a.Record != record(p) {
			t.Errorf("Acquire: got %+v, %v, want granted, and the record to be %+v", a, err, record(p))
		}
	}
	lost("Adopt", func() error {
		request++
		adopted := fallback.Row{Identity: id("bob", request), Token: fallback.MakeToken(record(1).Epoch, uint32(request))}
		v, err := redisarbiter.Adopt(t.Context(), n, 1, "adopted", adopted)
		return wrong(err, v == fallback.Granted && row(1, "adopted") == adopted)
	})
	lost("ReclaimOwner", func() error {
		v, err := redisarbiter.ReclaimOwner(t.Context(), n, 1, "alice", record(1).Epoch)
		return wrong(err, v == fallback.Granted)
	})
	lost("Revoke", func() error {
		err := n.Revoke(t.Context(), 1, record(1).Epoch, "bob")
		return wrong(err, record(1).Revoked)
	})
	// The repetition finds that the epoch is over: Stale, which is as good, for the owner has let
	// go either way.
	for p := range uint32(2) {
		if p == 1 {
			proxy.Lose("evalsha")
		}
		epoch := record(p).Epoch
		handed := fallback.Row{Identity: id("carol", 1), Token: fallback.MakeToken(epoch, 1)}
		d, err := n.Demote(t.Context(), p, "alice", epoch, map[string]fallback.Row{"handed over": handed})
		if want := []fallback.Verdict{fallback.Granted, fallback.Stale}[p]; err != nil || d.Verdict != want {
			t.Errorf("Demote: got %+v, %v, want %v", d, err, want)
		}
		if now := record(p); now.Owner != "" || now != d.Record || row(p, "handed over") != handed {
			t.Errorf("Demote: the record is %+v, its answer said %+v", now, d.Record)
		}
	}
}

// A server that was deposed may not have heard of a session's renewals, nor of its guardians: its
// death counts once a replica has got the server's write for that. The replica's connection is
// there for a while after it has fallen silent.
func TestASessionIsDeadOnceReplicasHeardOfIt(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	s := redistest.Start(t, "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "3600")
	replica := redistest.Start(t)
	replicate(t, replica, s)
	n := attach(t, s.Client(t), &redisarbiter.Options{ColdStart: true, Replicas: 1, ReplicaTimeout: 50 * time.Millisecond})
	dead := func() bool { // a session that never was is, too
		l, err := n.Dead(t.Context(), "brief", fallback.Stamp{})
		return wrong(err, l.Dead) == nil
	}
	buried := func() bool {
		b, err := n.(fallback.Burier).Bury(t.Context(), "brief", 1, []string{"alice"})
		return wrong(err, b.Dead) == nil
	}
	await.Within(t, patience, "that it is dead is acknowledged", func() bool { return dead() && buried() })
	if s.Client(t).HExists(t.Context(), sessionsKey, "").Val() {
		t.Error("what was written for WAIT stays")
	}
	await.Within(t, patience, "the replica has acknowledged all there is", func() bool {
		return strings.Contains(s.Client(t).Info(t.Context(), "replication").Val(), ",offset="+info(t, s, "master_repl_offset")+",")
	})
	if err := replica.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]func() bool{"Dead": dead, "Bury": buried} {
		if f() {
			t.Errorf("%s: the session is dead, and no replica has heard of it", what)
		}
	}
	if n := info(t, s, "connected_slaves"); n != "1" {
		t.Skipf("the server has closed the replica's connection already: %s replicas", n)
	}
	if err := replica.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await.Within(t, patience, "that it is dead is acknowledged again", func() bool { return dead() && buried() })
}

func TestReplicasMustAcknowledge(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	s := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	replica := redistest.Start(t)
	opts := &redisarbiter.Options{ColdStart: true, Replicas: 1, ReplicaTimeout: 50 * time.Millisecond}
	replicate(t, replica, s)
	n := attach(t, s.Client(t), opts)
	// On a slow machine 50 ms may be too short: it is tried again, as nodes do.
	await.Within(t, patience, "Open is acknowledged", func() bool {
		r, err := n.Open(t.Context(), "alice", fallback.Registration{TTL: time.Hour})
		return wrong(err, r.Alive) == nil
	})
	r, err := n.Load(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	var a fallback.Acquisition
	await.Within(t, patience, "Acquire is acknowledged", func() bool {
		a, err = n.Acquire(t.Context(), 3, "alice", fallback.Expect{Epoch: r.Epoch})
		return wrong(err, a.Verdict == fallback.Granted && a.Record.Owner == "alice") == nil
	})
	// It is written each time: newer servers answer WAIT about the writes of its own connection,
	// and the first call may have come by another one.
	before := info(t, s, "cmdstat_hset")
	await.Within(t, patience, "Acquire is acknowledged again", func() bool {
		a, err = n.Acquire(t.Context(), 3, "alice", fallback.Expect{Epoch: r.Epoch})
		return wrong(err, a.Verdict == fallback.Granted && a.Record.Owner == "alice") == nil
	})
	if after := info(t, s, "cmdstat_hset"); after == before {
		t.Error("an Acquire that was executed before writes nothing, and WAIT is about nothing")
	}
	if s.Client(t).HExists(t.Context(), recordKey(3), "").Val() {
		t.Error("what was written for WAIT stays")
	}
	var d fallback.Demotion
	await.Within(t, patience, "Demote is acknowledged", func() bool {
		d, err = n.DemoteUnserved(t.Context(), 3, "alice", a.Record.Epoch)
		return err == nil
	})
	if d.Record.Owner != "" {
		t.Errorf("Demote: got %+v, want nobody to own it", d)
	}
	use(t, attach(t, s.Client(t), opts))
	replica.Kill()
	await.Within(t, patience, "the replica is gone", func() bool { return info(t, s, "connected_slaves") == "0" })
	for what, f := range map[string]func() error{
		"Renew": func() error {
			_, err := n.Renew(t.Context(), "alice", fallback.Registration{TTL: time.Hour})
			return err
		},
		"Open": func() error { _, err := n.Open(t.Context(), "bob", fallback.Registration{TTL: time.Hour}); return err },
		"Acquire": func() error {
			r, _ := n.Load(t.Context(), 2)
			_, err := n.Acquire(t.Context(), 2, "alice", fallback.Expect{Epoch: r.Epoch})
			return err
		},
	} {
		if err := f(); err == nil || errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), "replicas") {
			t.Errorf("%s without a replica: got %v, want an error that names replicas and invites to try again", what, err)
		}
	}
	if _, err := n.Dead(t.Context(), "alice", fallback.Stamp{}); err != nil {
		t.Errorf("Dead, which changes nothing: %v", err)
	}

	if l, err := n.Dead(t.Context(), "nobody", fallback.Stamp{}); err == nil {
		t.Errorf("Dead without a replica: got %+v", l)
	}

	restart(t, replica)
	replicate(t, replica, s)
	await.Within(t, patience, "Renew is acknowledged", func() bool {
		r, err := n.Renew(t.Context(), "alice", fallback.Registration{TTL: time.Hour})
		return wrong(err, r.Alive) == nil
	})
	if err := s.Client(t).ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	await.Within(t, patience, "Renew is acknowledged, its script loaded again", func() bool {
		r, err := n.Renew(t.Context(), "alice", fallback.Registration{TTL: time.Hour})
		return wrong(err, r.Alive) == nil
	})
}
