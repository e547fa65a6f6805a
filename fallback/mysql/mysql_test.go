//go:build unix

package mysql

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// options are those of a server that has just begun, so nothing was lost.
func options() *Options { return &Options{ColdStart: true} }

func TestMySQLConforms(t *testing.T) {
	shared := startServer(t)
	f := arbitertest.Fixture{
		New: func(*testing.T) fallback.Arbiter { return New(shared.config("app"), options()) },
	}
	if storetest.Full() {
		f.NewServer = func(t *testing.T) arbitertest.Server {
			s := startServer(t)
			return arbitertest.Server{Arbiter: New(s.config("app"), options()), Save: s.save, Crash: s.crash}
		}
	}
	arbitertest.Run(t, f)
}

// One server whose data stay stands for a cluster that loses nothing.
func TestMySQLConforms_Durable(t *testing.T) {
	takes.Seconds(t)
	arbitertest.RunDurable(t, func(t *testing.T) arbitertest.Cluster {
		s := startServer(t)
		return arbitertest.Cluster{
			New: func(*testing.T) fallback.Arbiter {
				return New(s.config("app"), &Options{Durable: true, ColdStart: true})
			},
			Kill:    func(*testing.T) { s.restart() },
			Restart: func(*testing.T) { s.restart() },
			Careful: func(*testing.T) fallback.Arbiter { return New(s.config("app"), &Options{Durable: true}) },
			Empty:   func(*testing.T) { s.must(`DELETE FROM hf.holdfast`) },
			Delete:  func(_ *testing.T, key string) { s.must(`DELETE FROM hf.holdfast WHERE name = '` + key + `'`) },
		}
	})
}

func TestMySQL_NoTwoHolders(t *testing.T) {
	storetest.Minutes(t)
	s := startServer(t)
	var lines storetest.Lines
	start := func() fallback.Arbiter {
		c := s.config("app")
		c.DialFunc = lines.Another(t).Through(c.DialFunc)
		return New(c, options())
	}
	var injuries []func()
	for range 4 {
		injuries = append(injuries, s.restart, s.save, s.crash, func() { lines.Cut(4 * time.Second) })
	}
	storetest.NoTwoHolders(t, start, injuries...)
}

// A replica that lacks transactions is promoted, and the primary of before goes on for a while,
// beside it.
func TestMySQL_NoTwoHoldersBesideADeposedPrimary(t *testing.T) {
	storetest.Minutes(t)
	s := startServer(t)
	open := func(r *storetest.Route) fallback.Arbiter {
		c := s.config("app")
		c.DialFunc = r.Dial
		return New(c, options())
	}
	storetest.BesideADeposed(t, s.now.Load().connect, open, s.save, func() (storetest.To, func()) {
		before := s.now.Load()
		s.promote()
		return s.now.Load().connect, before.process.Kill
	})
}

// Old files are put back under the server that wrote them, while processes hold locks, as README.md
// says to do it.
func TestMySQL_NoTwoHoldersOverRestores(t *testing.T) {
	storetest.Minutes(t)
	s := startServer(t)
	var lines storetest.Lines
	start := func() fallback.Arbiter {
		c := s.config("app")
		c.DialFunc = lines.Another(t).Through(c.DialFunc)
		return New(c, nil)
	}
	var injuries []func()
	for range 4 {
		injuries = append(injuries, lines.Restored(s.copied, s.unmark)...)
	}
	storetest.NoTwoHolders(t, start, injuries...)
}

// The cost of processes at rest, each with a lock. README.md has the figures.
func TestMySQL_WhatItCostsAtRest(t *testing.T) {
	storetest.Minutes(t)
	s := startServer(t)
	store := newStore(s.config("app"), options())
	storetest.AtRest(t, store, store.records())
}

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

// kill -9 of the server loses nothing, so there is no Grace.
func TestMySQL_ARestartHasNoGrace(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	n := storetest.Attach(t, New(s.config("app"), options()))
	first := again(t, func() (fallback.Renewal, error) {
		return n.Open(t.Context(), "alice", fallback.Registration{TTL: time.Hour})
	})
	held := lock(t, n, storetest.Alice)
	for range 2 {
		s.restart()
		a := lock(t, n, storetest.Bob)
		if want := (fallback.Row{Identity: storetest.Alice, Token: held.Token}); a.Verdict != fallback.Held || a.Holder != want || a.Record.Grace != 0 {
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

// A replica that takes the primary's place has not got the last lock. Then the old primary comes
// back as a replica of it, and takes its place in turn: both are noticed, though the server is one
// that there was before.
func TestMySQL_APromotionIsNoticed_AndTheWayBack(t *testing.T) {
	storetest.Minutes(t)
	s := startServer(t)
	n := storetest.Attach(t, New(s.config("app"), options()))
	names := make(map[string]bool)
	look := func(what string, grace bool) {
		t.Helper()
		r := again(t, func() (fallback.Renewal, error) {
			return n.Renew(t.Context(), "alice", fallback.Registration{TTL: time.Hour})
		})
		rec := again(t, func() (fallback.Record, error) { return n.Load(t.Context(), 0) })
		if names[r.Server] || (r.Grace != 0) != grace || (rec.Grace != 0) != grace {
			t.Errorf("%s: %+v, %+v; server names of before: %v", what, r, rec, names)
		}
		names[r.Server] = true
	}
	again(t, func() (fallback.Renewal, error) {
		return n.Open(t.Context(), "alice", fallback.Registration{TTL: time.Hour})
	})
	look("at first", false)
	s.save()
	lock(t, n, storetest.Alice)
	first := s.now.Load()
	s.crash()
	look("after the promotion", true)
	second := s.now.Load()
	// The first server with the second one's data, as one is set up anew that has diverged.
	second.process.Kill()
	s.run("rm", "-rf", first.dir+"/data")
	s.run("cp", "-a", second.dir+"/data", first.dir)
	if *program != "" {
		s.run("cp", first.dir+"/auto.cnf", first.dir+"/data/auto.cnf")
	}
	s.now.Store(first)
	s.begin()
	look("after the way back", true)
}

// Old files under the server that wrote them tell by themselves of nothing: the process that has
// seen newer ones does.
func TestMySQL_ARestoredBackupIsNoticed(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	n := storetest.Attach(t, New(s.config("app"), options()))
	back := s.copied()
	opened := again(t, func() (fallback.Renewal, error) {
		return n.Open(t.Context(), "alice", fallback.Registration{TTL: time.Hour})
	})
	token := lock(t, n, storetest.Alice).Token
	back()
	r := again(t, func() (fallback.Record, error) { return n.Witness(t.Context(), 0, token) })
	l := again(t, func() (fallback.Liveness, error) {
		return n.Dead(t.Context(), "bob", fallback.Stamp{Session: "alice", Seen: opened.Expiry})
	})
	if r.Grace == 0 || l.Grace == 0 || l.Dead {
		t.Errorf("Grace after a backup was restored: %+v, %+v", r, l)
	}
	// An operator who restores one tells of it by taking the mark away: then no process needs to
	// have seen newer data.
	s.unmark()
	if r := again(t, func() (fallback.Record, error) { return n.Load(t.Context(), 1) }); r.Grace == 0 {
		t.Errorf("Grace without the mark: %+v", r)
	}
}

func TestMySQL_TokensRiseOverARestore(t *testing.T) {
	takes.Seconds(t)
	s := startServer(t)
	storetest.TokensRise(t, func() fallback.Arbiter { return New(s.config("app"), nil) }, s.copied, s.unmark)
}

func refused(t *testing.T, a fallback.Arbiter, why string) {
	t.Helper()
	n, err := a.Attach(t.Context(), storetest.Settings)
	if !errors.Is(err, fallback.ErrRefused) || n != nil || !strings.Contains(err.Error(), why) {
		t.Errorf("got %v, want a refusal that names %s", err, why)
	}
}

// Processes that start at the same time in a new database make the table once, and none is refused.
func TestMySQL_ProcessesThatStartTogether(t *testing.T) {
	const rounds, processes = 20, 8
	s := startServer(t)
	for i := range rounds {
		var all sync.WaitGroup
		for range processes {
			all.Go(func() {
				n, err := New(s.config("app"), &Options{Table: fmt.Sprint("t", i), ColdStart: true}).Attach(t.Context(), storetest.Settings)
				if err != nil {
					t.Error(err)
					return
				}
				_ = n.Close()
			})
		}
		all.Wait()
	}
}

func TestMySQL_RefusesServersThatLose(t *testing.T) {
	takes.Seconds(t)
	refused(t, New(nil, nil), "config")
	s := startServer(t)
	refused(t, New(s.config("app"), &Options{Conns: -1}), "Conns")
	refused(t, New(s.config("app"), &Options{Table: "nowhere.locks"}), "privilege")
	c := s.config("app")
	c.DBName = "nowhere"
	refused(t, New(c, nil), "database")
	c = s.config("app")
	c.DBName = ""
	refused(t, New(c, nil), "DBName")
	c.Passwd = "wrong"
	refused(t, New(c, nil), "let the user in")
	s.must(`CREATE TABLE hf.volatile (name VARBINARY(255) PRIMARY KEY, version BIGINT, value LONGBLOB) ENGINE = MyISAM`,
		`CREATE TABLE hf.folded (name VARCHAR(255) PRIMARY KEY, version BIGINT, value LONGBLOB)`)
	refused(t, New(s.config("app"), &Options{Table: "volatile"}), "MyISAM")
	refused(t, New(s.config("app"), &Options{Table: "folded"}), "columns")
	s.must(`CREATE VIEW hf.seen AS SELECT * FROM hf.volatile`)
	refused(t, New(s.config("app"), &Options{Table: "seen"}), "none, must be InnoDB")
	for name, values := range map[string][2]string{
		"innodb_flush_log_at_trx_commit": {"2", "1"}, "sync_binlog": {"0", "1"}, "binlog_format": {"'STATEMENT'", "'MIXED'"},
	} {
		s.must("SET GLOBAL " + name + " = " + values[0])
		refused(t, New(s.config("app"), options()), name)
		s.must("SET GLOBAL " + name + " = " + values[1])
	}

	// A user with rights only to read and write the table, which a migration has made.
	s.must(Table("hf.locks"), `CREATE USER clerk IDENTIFIED BY 'secret'`, `GRANT SELECT, INSERT, UPDATE ON hf.locks TO clerk`)
	n := storetest.Attach(t, New(s.config("clerk"), &Options{Table: "hf.locks", ColdStart: true}))
	if a := lock(t, n, storetest.Alice); a.Verdict != fallback.Granted {
		t.Errorf("Lock by a user who may only read and write: %+v", a)
	}
}

// A server that may acknowledge writes that no replica has is told of.
func TestMySQL_AdvisesOnReplicas(t *testing.T) {
	takes.Seconds(t)
	if *program != "" {
		t.Skip("MySQL's performance schema, which tells of replicas, is off in these tests")
	}
	s := startServer(t)
	n := storetest.Attach(t, New(s.config("app"), options()))
	advised := func(what string, about ...string) {
		t.Helper()
		all := again(t, func() ([]string, error) { return n.(fallback.Adviser).Advise(t.Context()) })
		if len(all) != len(about) || len(all) > 0 && !strings.Contains(all[0], about[0]) {
			t.Errorf("%s: %q, want %q", what, all, about)
		}
	}
	advised("alone")
	s.follow()
	advised("asynchronous", "use semi-synchronous replication")
	s.must(`SET GLOBAL rpl_semi_sync_master_enabled = 1`)
	advised("with the default timeout", "set rpl_semi_sync_master_timeout")
	s.must(`SET GLOBAL rpl_semi_sync_master_timeout = 1000000000`)
	advised("with one of days")
}
