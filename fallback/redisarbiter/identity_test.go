package redisarbiter_test

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// A server draws a new master_replid also when it makes or frees its replication backlog. It has
// lost nothing then.

// stays checks that a server takes another name in f and that its grants are as good as before.
func stays(t *testing.T, s *redistest.Server, n fallback.Namespace, f func()) {
	t.Helper()
	open(t, n, "alice")
	held := lock(t, n, 0, "held", id("alice", 1))
	before, err := n.Renew(t.Context(), "alice", fallback.Registration{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	name := info(t, s, "master_replid")
	f()
	await.Within(t, patience, "the server has another name", func() bool { return info(t, s, "master_replid") != name })
	wantGrace(t, n, plain, false)
	if r, err := n.Renew(t.Context(), "alice", fallback.Registration{TTL: time.Hour}); err != nil || r.Alive != before.Alive || r.Server != before.Server || r.Grace != before.Grace || r.Sessions != before.Sessions {
		t.Errorf("Renew: got %+v, %v, want %+v as before", r, err, before)
	}
	if a := lock(t, n, 0, "held", id("bob", 1)); a.Verdict != fallback.Held || a.Holder.Token != held.Token {
		t.Errorf("Lock of what is held: got %+v", a)
	}
	use(t, n)
}

// backup runs redis-cli --rdb.
func backup(t *testing.T, s *redistest.Server) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "redis-cli", "-p", s.Port(), "--rdb", filepath.Join(t.TempDir(), "dump.rdb")).CombinedOutput()
	if err != nil {
		t.Fatalf("redis-cli --rdb: %v\n%s", err, out)
	}
}

func TestServerStaysTheSameWhenABackupIsTaken(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	n := attach(t, s.Client(t), cold)
	stays(t, s, n, func() { backup(t, s) })
}

func TestServerStaysTheSameWhenItsFirstReplicaComesAndTheLastOneGoes(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	a, b := redistest.Start(t, "--repl-diskless-sync-delay", "0", "--repl-backlog-ttl", "1"), redistest.Start(t)
	n := attach(t, a.Client(t), cold)
	stays(t, a, n, func() { replicate(t, b, a) })
	stays(t, a, n, b.Kill) // the backlog is freed
}

// Both at once: the name has changed twice when it is looked at again.
func TestServerStaysTheSameThoughItsNameHasChangedMoreThanOnce(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	s := redistest.Start(t, "--repl-diskless-sync-delay", "0", "--repl-backlog-ttl", "1")
	n := attach(t, s.Client(t), cold)
	stays(t, s, n, func() {
		backup(t, s)
		name := info(t, s, "master_replid")
		await.Within(t, patience, "the backlog is freed", func() bool { return info(t, s, "master_replid") != name })
	})
}

// A server that has started again from its data takes another name when it gets a replica. The
// Graces that processes have seen end by their names all the same.
func TestGraceEndsByItsNameThoughTheServerHasTakenAnother(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	s := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	n := attach(t, s.Client(t), cold)
	await.Within(t, patience, "the data is saved", func() bool { return s.Client(t).Save(t.Context()).Err() == nil })
	restart(t, s)
	wantGrace(t, n, plain, true)
	by := n.(fallback.Rounder)
	named := by.Graces(t.Context(), []uint32{0})
	name := info(t, s, "master_replid")
	backup(t, s)
	if info(t, s, "master_replid") == name {
		t.Fatal("the server has kept its name")
	}
	wantGrace(t, n, plain, true) // the record has the other name now
	for _, first := range []bool{true, false} {
		if a := by.EndGraces(t.Context(), named)[0]; a != (fallback.EndedGrace{Ended: first}) {
			t.Errorf("%q: %+v, the first: %t", named[0].Name, a, first)
		}
	}
	if r, err := n.Load(t.Context(), 0); err != nil || r.Grace != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// The servers of the tests below are other ones, with or without the data.

func TestServerThatIsRestartedWithItsDataIsAnotherOne(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	for name, args := range map[string][]string{
		"from a dump":                           {"--repl-diskless-sync-delay", "0"},
		"from a dump of one that had a replica": {"--repl-diskless-sync-delay", "0", "--repl-backlog-ttl", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, args...)
			c := s.Client(t)
			n := attach(t, c, cold)
			if len(args) > 2 { // the dump has a name of replication, which the server remembers until the backlog is freed
				backup(t, s)
			}
			wantGrace(t, n, plain, false)
			await.Within(t, patience, "the data is saved", func() bool { return c.Save(t.Context()).Err() == nil }) // the backup's may be under way
			restart(t, s)
			if len(args) > 2 {
				backup(t, s)
				await.Within(t, patience, "the backlog is freed", func() bool { return info(t, s, "repl_backlog_active") == "0" })
			}
			wantGrace(t, n, plain, true)
		})
	}
}
