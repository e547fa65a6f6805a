package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/postgres"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

var settings, attach = storetest.Settings, storetest.Attach

// again calls f until it has no error: the server may be away.
func again[T any](t *testing.T, f func() (T, error)) (x T) {
	t.Helper()
	await.Until(t, "an answer", func() bool {
		var err error
		x, err = f()
		return err == nil
	})
	return x
}

func lock(t *testing.T, n fallback.Namespace, me fallback.Identity) fallback.LockAnswer {
	t.Helper()
	return again(t, func() (fallback.LockAnswer, error) {
		return n.Lock(t.Context(), fallback.LockRequest{Key: "k", Me: me, Block: 1})
	})
}

var (
	alice = fallback.Identity{Session: "alice", Request: 1}
	bob   = fallback.Identity{Session: "bob", Request: 1}
)

// kill -9 of the server loses nothing, so there is no Grace.
func TestPostgres_ARestartHasNoGrace(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	n := attach(t, postgres.New(s.config("app"), options()))
	first := again(t, func() (fallback.Renewal, error) {
		return n.Open(t.Context(), "alice", fallback.Registration{TTL: time.Hour})
	})
	held := lock(t, n, alice)
	for range 2 {
		s.restart()
		a := lock(t, n, bob)
		if want := (fallback.Row{Identity: alice, Token: held.Token}); a.Verdict != fallback.Held || a.Holder != want || a.Record.Grace != 0 {
			t.Fatalf("Lock after a restart: %+v", a)
		}
		r := again(t, func() (fallback.Renewal, error) {
			return n.Renew(t.Context(), "alice", fallback.Registration{TTL: time.Hour, Seen: first.Expiry})
		})
		if !r.Alive || r.Grace != 0 || r.Server != first.Server {
			t.Fatalf("Renew after a restart: %+v, before it %+v", r, first)
		}
	}
}

// Old files under the server that wrote them tell by themselves of nothing: the process that has
// seen newer ones does.
func TestPostgres_ARestoredBackupIsNoticed(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	n := attach(t, postgres.New(s.config("app"), options()))
	back := s.copied()
	opened := again(t, func() (fallback.Renewal, error) {
		return n.Open(t.Context(), "alice", fallback.Registration{TTL: time.Hour})
	})
	token := lock(t, n, alice).Token
	back()
	r := again(t, func() (fallback.Record, error) { return n.Witness(t.Context(), 0, token) })
	l := again(t, func() (fallback.Liveness, error) {
		return n.Dead(t.Context(), "bob", fallback.Stamp{Session: "alice", Seen: opened.Expiry})
	})
	if r.Grace == 0 || l.Grace == 0 || l.Dead {
		t.Errorf("Grace after a backup was restored: %+v, %+v", r, l)
	}
}

func TestPostgres_TokensRiseOverARestore(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	storetest.TokensRise(t, func() fallback.Arbiter { return postgres.New(s.config("app"), &postgres.Options{Table: "hf.locks"}) }, s.copied, func() { s.must(`DELETE FROM hf.locks`) })
}

func TestPostgres_RefusesServersThatLose(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	refused := func(why string, c *postgres.Options, role string) {
		t.Helper()
		n, err := postgres.New(s.config(role), c).Attach(t.Context(), settings)
		if !errors.Is(err, fallback.ErrRefused) || n != nil || !strings.Contains(err.Error(), why) {
			t.Errorf("got %v, want a refusal that names %s", err, why)
		}
	}
	if _, err := postgres.New(nil, nil).Attach(t.Context(), settings); !errors.Is(err, fallback.ErrRefused) {
		t.Errorf("without a config: %v", err)
	}
	refused("Conns", &postgres.Options{Conns: -1}, "app")
	refused("privilege", &postgres.Options{Table: "public.locks"}, "app")
	refused("schema", &postgres.Options{Table: "nowhere.locks"}, "app")
	refused("does not", options(), "stranger")
	s.must(`CREATE UNLOGGED TABLE hf.volatile (key text PRIMARY KEY, version bigint, value text)`)
	refused("unlogged", &postgres.Options{Table: "hf.volatile"}, "admin")
	s.must(`CREATE TABLE hf.other (key text PRIMARY KEY)`, `GRANT ALL ON hf.other TO app`)
	refused("columns", &postgres.Options{Table: "hf.other"}, "app")
	s.must(`ALTER ROLE app SET synchronous_commit = off`)
	refused("synchronous_commit", options(), "app")
	s.must(`ALTER ROLE app RESET synchronous_commit`)

	// A role that may only read and write the table, which a migration has made.
	s.must(postgres.Table("hf.locks"), `CREATE ROLE clerk LOGIN`, `GRANT USAGE ON SCHEMA hf TO clerk`, `GRANT SELECT, INSERT, UPDATE ON hf.locks TO clerk`)
	n := attach(t, postgres.New(s.config("clerk"), options()))
	if a := lock(t, n, alice); a.Verdict != fallback.Granted {
		t.Errorf("Lock by a role that may only read and write: %+v", a)
	}

	s.end()
	s.begin(s.data, "fsync=off")
	refused("fsync", options(), "app")
}

// A new server's first namespace is new as soon as the server has been up for Q. ColdStart does not
// wait.
func TestPostgres_TheFirstStart(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	n := attach(t, postgres.New(s.config("app"), &postgres.Options{Table: "hf.locks"}))
	r := again(t, func() (fallback.Record, error) { return n.Load(t.Context(), 0) })
	if r.Grace <= time.Hour-time.Minute || r.Grace >= time.Hour {
		t.Errorf("Grace of a namespace on a server that has just begun: %v", r.Grace)
	}
}

// A standby is no primary: a client that is led there waits for better times.
func TestPostgres_AStandbyIsNotRefusedForGood(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	s.save()
	s.kill()
	s.begin(s.saved, "primary_conninfo=")
	_, err := postgres.New(s.config("app"), options()).Attach(t.Context(), settings)
	if err == nil || errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), "standby") {
		t.Error(err)
	}
}

// An operator is told why calls fail: of a right that the role has lost, of a role that may not log
// in any more, and of a server that takes no writes.
func TestPostgres_ReasonsOfFailures(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	s.must(postgres.Table("hf.locks"), `CREATE ROLE clerk LOGIN`, `GRANT USAGE ON SCHEMA hf TO clerk`, `GRANT SELECT, INSERT, UPDATE ON hf.locks TO clerk`)
	n := attach(t, postgres.New(s.config("clerk"), options()))
	lock(t, n, alice)
	load := func() error {
		_, err := n.Load(t.Context(), 0)
		return err
	}
	s.must(`REVOKE SELECT ON hf.locks FROM clerk`)
	if err := load(); !errors.Is(err, fallback.ErrDenied) || !errors.Is(err, fallback.ErrRefused) {
		t.Errorf("without the right to read: %v", err)
	}
	hangUp := `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'clerk'`
	s.must(`GRANT SELECT ON hf.locks TO clerk`, `ALTER ROLE clerk NOLOGIN`, hangUp)
	if err := load(); !errors.Is(err, fallback.ErrDenied) || !errors.Is(err, fallback.ErrNotSent) || errors.Is(err, fallback.ErrRefused) {
		t.Errorf("without the right to log in: %v", err)
	}
	s.must(`ALTER ROLE clerk LOGIN`, `ALTER ROLE clerk SET default_transaction_read_only = on`)
	if err := load(); err != nil {
		t.Errorf("with the rights again: %v", err)
	}
	if _, err := n.Lock(t.Context(), fallback.LockRequest{Partition: 1, Key: "k", Me: alice, Block: 1}); !errors.Is(err, fallback.ErrReadOnly) || errors.Is(err, fallback.ErrRefused) {
		t.Errorf("Lock at a server that takes no writes: %v", err)
	}
}

// Coordinators lock keys while the server is killed, and replaced by a standby that lacks some of
// its commits. One of them is cut off from it for longer than its session lasts.
func TestPostgres_NoTwoHoldersOverKillsAndPromotions(t *testing.T) {
	storetest.Minutes(t)
	s := startServer(t)
	var lines storetest.Lines
	start := func() fallback.Arbiter {
		c := s.config("app")
		c.ConnConfig.DialFunc = lines.Another(t).Through(c.ConnConfig.DialFunc)
		return postgres.New(c, options())
	}
	var injuries []func()
	for range 4 {
		injuries = append(injuries, s.restart, s.save, s.crash, func() { lines.Cut(4 * time.Second) })
	}
	storetest.NoTwoHolders(t, start, injuries...)
}

// A standby that lacks commits is promoted, and the primary of before goes on for a while, beside
// it.
func TestPostgres_NoTwoHoldersBesideADeposedPrimary(t *testing.T) {
	storetest.Minutes(t)
	s := startServer(t)
	open := func(r *storetest.Route) fallback.Arbiter {
		c := s.config("app")
		c.ConnConfig.DialFunc = r.Dial
		return postgres.New(c, options())
	}
	storetest.BesideADeposed(t, s.connect, open, func() { s.save() }, func() (storetest.To, func()) {
		before := s
		s = before.promoted()
		return s.connect, before.kill
	})
}

// A primary whose synchronous standby is away may have been deposed. It has heard of no session
// that was opened, and of no renewal, since then, so nothing that it says of a death counts.
func TestPostgres_ASynchronousPrimaryAloneDeclaresNobodyDead(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	n := attach(t, postgres.New(s.config("app"), options()))
	for session, ttl := range map[string]time.Duration{"alice": 50 * time.Millisecond, "bob": time.Hour} {
		again(t, func() (fallback.Renewal, error) { return n.Open(t.Context(), session, fallback.Registration{TTL: ttl}) })
	}
	dead := func(session string) bool {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		l, err := n.Dead(ctx, session, fallback.Stamp{})
		return err == nil && l.Dead
	}
	s.must(`ALTER SYSTEM SET synchronous_standby_names = 'away'`, `SELECT pg_reload_conf()`)
	await.Until(t, "writes wait for the standby", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := n.Renew(ctx, "bob", fallback.Registration{TTL: time.Hour})
		return err != nil
	})
	for range 4 {
		for _, session := range []string{"alice", "nobody"} {
			if dead(session) {
				t.Errorf("%s is said to be dead", session)
			}
		}
	}
	s.must(`ALTER SYSTEM RESET synchronous_standby_names`, `SELECT pg_reload_conf()`)
	for _, session := range []string{"alice", "nobody"} {
		await.Until(t, session+" is dead", func() bool { return dead(session) })
	}
}

// Old files are put back under the server that wrote them, and the table is emptied before
// processes that hold locks reach it. Else a process that has seen less than the copy has may ask
// first. It gets a token that was there before (docs/protocol.md, "Old data").
func TestPostgres_NoTwoHoldersOverRestores(t *testing.T) {
	storetest.Minutes(t)
	s := startServer(t)
	var lines storetest.Lines
	start := func() fallback.Arbiter {
		c := s.config("app")
		c.ConnConfig.DialFunc = lines.Another(t).Through(c.ConnConfig.DialFunc)
		return postgres.New(c, &postgres.Options{Table: "hf.locks"})
	}
	var injuries []func()
	for range 4 {
		injuries = append(injuries, lines.Restored(s.copied, func() { s.must(`DELETE FROM hf.locks`) })...)
	}
	storetest.NoTwoHolders(t, start, injuries...)
}

// A server that acknowledges writes that no standby has is told of.
func TestPostgres_AdvisesOnStandbys(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	n := attach(t, postgres.New(s.config("app"), options()))
	advice := func() []string {
		return again(t, func() ([]string, error) { return n.(fallback.Adviser).Advise(t.Context()) })
	}
	if all := advice(); len(all) > 0 {
		t.Errorf("alone: %q", all)
	}
	s.receive()
	await.Until(t, "the server knows of a standby", func() bool { return len(advice()) > 0 })
	for _, x := range []struct{ statement, about string }{
		{`ALTER SYSTEM RESET synchronous_standby_names`, "set synchronous_standby_names"},
		{`ALTER SYSTEM SET synchronous_standby_names = '*'`, ""},
		{`ALTER ROLE app SET synchronous_commit = local`, "set synchronous_commit to on"},
		{`ALTER ROLE app SET synchronous_commit = remote_write`, ""},
	} {
		s.must(x.statement, `SELECT pg_reload_conf()`)
		n := attach(t, postgres.New(s.config("app"), options())) // with connections of its own
		var all []string
		await.Until(t, "the advice after "+x.statement, func() bool {
			all = again(t, func() ([]string, error) { return n.(fallback.Adviser).Advise(t.Context()) })
			return x.about == "" && len(all) == 0 || len(all) == 1 && x.about != "" && strings.Contains(all[0], x.about)
		})
	}
}
