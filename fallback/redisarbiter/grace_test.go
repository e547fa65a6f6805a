package redisarbiter_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// patience is the time to wait for an event that must happen: long, because machines that run tests
// can be slow.
const patience = 30 * time.Second

// info reads one field of INFO.
func info(t *testing.T, s *redistest.Server, field string) string {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	text, err := c.Info(t.Context(), "everything").Result()
	if err != nil {
		t.Fatal(err)
	}
	return redisarbiter.ParseInfo(text)[field]
}

// graces returns the time left of Grace in the table of sessions and in each partition.
func graces(t *testing.T, n fallback.Namespace, s fallback.Settings) []time.Duration {
	t.Helper()
	l, err := n.Dead(t.Context(), "nobody", fallback.Stamp{})
	if err != nil {
		t.Fatal(err)
	}
	all := []time.Duration{l.Grace}
	var reads []fallback.Read
	for p := range uint32(s.Partitions) {
		reads = append(reads, fallback.Read{Partition: p})
	}
	states, err := redisarbiter.Verify(t.Context(), n, reads)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range states {
		all = append(all, x.Record.Grace)
	}
	return all
}

// wantGrace checks that the table of sessions and all partitions are in Grace, or that none of them
// is.
func wantGrace(t *testing.T, n fallback.Namespace, s fallback.Settings, want bool) {
	t.Helper()
	for i, left := range graces(t, n, s) {
		if (left > 0) != want || left > s.Grace {
			t.Errorf("sessions and partitions, number %d: %v left of Grace; in Grace: %t is wanted", i, left, want)
		}
	}
}

// A server that has just started may have lost grants of an earlier process of it.
func TestNewNamespaceOnYoungServerIsInGrace(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	wantGrace(t, attach(t, s.Client(t), nil), plain, true)
}

func TestColdStartTakesEmptyServerForNew(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	n := attach(t, s.Client(t), cold)
	wantGrace(t, n, plain, false)
	use(t, n)
}

// Whatever an earlier process of the server granted is over once this one has been up for Q: not
// before, though the server tells its age in full seconds.
func TestGraceOfNewNamespaceLastsUntilServerHasBeenUpForQ(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	const q = 2 * time.Second
	before := time.Now()
	s := redistest.Start(t)
	c := s.Client(t)
	i := 0
	await.Within(t, patience, "Grace ends", func() bool {
		settings := fallback.Settings{Namespace: fmt.Sprint("ns", i), Partitions: 2, Grace: q}
		i++
		n := attachTo(t, c, nil, settings)
		ended := 0
		for what, left := range graces(t, n, settings) {
			if end := time.Now().Add(left); end.Before(before.Add(q)) {
				t.Fatalf("sessions and partitions, number %d: Grace ends %v before the server has been up for %v", what, before.Add(q).Sub(end), q)
			}
			if left == 0 {
				ended++
			}
		}
		if ended < 1+settings.Partitions {
			return false
		}
		use(t, n)
		return true
	})
}

// A server that was promoted does not tell since when it is the primary.
func TestNewNamespaceOnPromotedServerIsInGraceHoweverOldTheServer(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	other, s := redistest.Start(t, "--repl-diskless-sync-delay", "0"), redistest.Start(t)
	replicate(t, s, other)
	promote(t, s)
	old := func(s *redistest.Server) bool {
		seconds, err := strconv.Atoi(info(t, s, "uptime_in_seconds"))
		if err != nil {
			t.Fatal(err)
		}
		return seconds >= 3
	}
	await.Within(t, patience, "both are older than Q", func() bool { return old(s) && old(other) })

	// One that does not tell its age, and one that has lost data that a process has seen, are as a
	// young one.
	settings := fallback.Settings{Namespace: "untold", Partitions: 1, Grace: time.Hour}
	wantGrace(t, attachTo(t, aclUser(t, other, "noinfo", "-info"), nil, settings), settings, true)
	settings = fallback.Settings{Namespace: "lost", Partitions: 1, Grace: time.Second}
	n := attachTo(t, other.Client(t), nil, settings)
	if err := other.Client(t).FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if r, err := n.Renew(t.Context(), "alice", fallback.Registration{TTL: time.Hour}); err != nil || r.Grace <= 0 {
		t.Errorf("Renew after the loss: %+v, %v, want to be in Grace", r, err)
	}
	for i := range 10 {
		settings := fallback.Settings{Namespace: fmt.Sprint("ns", i), Partitions: 1, Grace: time.Second}
		wantGrace(t, attachTo(t, other.Client(t), nil, settings), settings, false)
		if g := graces(t, attachTo(t, s.Client(t), nil, settings), settings); g[0] > 0 && g[1] > 0 {
			return
		}
	}
	t.Error("ten namespaces on a server that was promoted, and none was seen in Grace")
}

func TestRestartedEmptyServerIsInGraceForAll(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := s.Client(t)
	n := attach(t, c, cold)
	open(t, n, "alice")
	held := lock(t, n, 0, "k", id("alice", 1))
	restart(t, s)

	t.Run("for a process that attaches now", func(t *testing.T) {
		wantGrace(t, attach(t, c, nil), plain, true)
	})
	restart(t, s)
	t.Run("for one that was attached, whose Renew formats the namespace anew", func(t *testing.T) {
		r, err := n.Renew(t.Context(), "alice", fallback.Registration{TTL: time.Hour})
		if err != nil || !r.Alive || r.Grace <= 0 {
			t.Errorf("Renew: got %+v, %v, want alive and in Grace", r, err)
		}
		if mark := c.HGet(t.Context(), "{ns:s}", "f").Val(); !strings.Contains(mark, "partitions=4") {
			t.Errorf("format mark is %q", mark)
		}
		for p := range plain.Partitions {
			if fields := c.HGetAll(t.Context(), fmt.Sprintf("{ns:p%d}", p)).Val(); len(fields) == 0 {
				t.Errorf("partition %d was not formatted", p)
			}
		}
		wantGrace(t, n, plain, true)
	})
	t.Run("for one with ColdStart, too, once somebody knows better", func(t *testing.T) {
		wantGrace(t, attach(t, c, cold), plain, true)
	})
	v, err := redisarbiter.ReclaimRow(t.Context(), n, 0, "k", fallback.Row{Identity: id("alice", 1), Token: held.Token})
	if err != nil || v != fallback.Granted {
		t.Errorf("ReclaimRow: got %v, %v, want granted", v, err)
	}
}

// ColdStart counts at the first contact only. In a Redis Cluster the server with the sessions may
// lose its data alone. Holders and owners may be at work then, so no session is declared dead at
// once. That is so even if the process that comes first says that the server is new.
func TestRestartedServerOfTheSessionsAlone(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		use   func(t *testing.T, n fallback.Namespace)
		grace bool
	}{
		"nothing is in use": {func(*testing.T, fallback.Namespace) {}, false},
		"a key is held":     {func(t *testing.T, n fallback.Namespace) { lock(t, n, 1, "k", id("alice", 1)) }, true},
		"a partition is owned": {func(t *testing.T, n fallback.Namespace) {
			r, err := n.Load(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			if a, err := n.Acquire(t.Context(), 1, "alice", fallback.Expect{Epoch: r.Epoch}); err != nil || a.Verdict != fallback.Granted {
				t.Fatalf("Acquire: %+v, %v", a, err)
			}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := redistest.Start(t).Client(t)
			tt.use(t, attach(t, c, cold))
			if err := c.Del(t.Context(), sessionsKey).Err(); err != nil {
				t.Fatal(err)
			}
			l, err := attach(t, c, cold).Dead(t.Context(), "alice", fallback.Stamp{})
			if err != nil || l.Dead == tt.grace || (l.Grace > 0) != tt.grace {
				t.Errorf("got %+v, %v; in Grace: %t is wanted", l, err, tt.grace)
			}
		})
	}
}

func TestColdStartIsForgottenAfterAttach(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	n := attach(t, s.Client(t), cold)
	open(t, n, "alice")
	if err := s.Client(t).FlushAll(t.Context()).Err(); err != nil { // the same server, but it lost everything
		t.Fatal(err)
	}
	wantGrace(t, n, plain, true)
	r, err := n.Renew(t.Context(), "alice", fallback.Registration{TTL: time.Hour})
	if err != nil || !r.Alive || r.Grace <= 0 {
		t.Errorf("Renew: got %+v, %v, want alive and in Grace", r, err)
	}
	wantGrace(t, n, plain, true)
}

func TestPartitionThatIsLostIsInGraceAlone(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	n := attach(t, s.Client(t), cold)
	if err := s.Client(t).Del(t.Context(), "{ns:p2}").Err(); err != nil {
		t.Fatal(err)
	}
	for i, left := range graces(t, n, plain) {
		if (left > 0) != (i == 3) {
			t.Errorf("sessions and partitions, number %d: %v left of Grace", i, left)
		}
	}
}

// primary is a client of whichever server is the primary, as one behind Sentinel or a name is.
func primary(t *testing.T, first *redistest.Server) (c *redis.Client, change func(*redistest.Server)) {
	var addr atomic.Pointer[string]
	addr.Store(&first.Addr)
	c = dial(t, "primary:6379", func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, *addr.Load())
		}
	})
	return c, func(s *redistest.Server) { addr.Store(&s.Addr) }
}

// replicate makes s a replica of another one and waits until it has the same data.
func replicate(t *testing.T, s, of *redistest.Server) {
	t.Helper()
	if err := s.Replicate(t.Context(), of); err != nil {
		t.Fatal(err)
	}
	inStep(t, s, of)
}

func inStep(t *testing.T, s, of *redistest.Server) {
	t.Helper()
	await.Within(t, patience, "the replica is in step", func() bool {
		return info(t, s, "master_link_status") == "up" && info(t, s, "slave_repl_offset") == info(t, of, "master_repl_offset")
	})
}

func promote(t *testing.T, s *redistest.Server) {
	t.Helper()
	if err := s.Replicate(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

// The primary dies of a sudden, and its last writes with it: a hold, a release, an ownership, a
// session.
func TestFailoverToReplicaThatMissedWrites(t *testing.T) {
	t.Parallel()
	a, b := redistest.Start(t, "--repl-diskless-sync-delay", "0"), redistest.Start(t)
	replicate(t, b, a)
	c, change := primary(t, a)
	n := attach(t, c, cold)
	open(t, n, "early")
	known := lock(t, n, 0, "known", id("early", 1))
	released := lock(t, n, 0, "released", id("early", 2))
	inStep(t, b, a)
	promote(t, b) // it does not follow any more

	open(t, n, "late")
	if err := errors.Join(n.Unlock(t.Context(), []fallback.Release{{Key: "released", Identity: id("early", 2)}})...); err != nil {
		t.Fatal(err)
	}
	missed := lock(t, n, 0, "missed", id("late", 1))
	again := lock(t, n, 0, "released", id("late", 2))
	r, err := n.Load(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	owned, err := n.Acquire(t.Context(), 1, "late", fallback.Expect{Epoch: r.Epoch})
	if err != nil || owned.Verdict != fallback.Granted {
		t.Fatalf("Acquire: %+v, %v", owned, err)
	}
	a.Kill()
	change(b)

	wantGrace(t, n, plain, true)
	if got := lock(t, n, 0, "missed", id("early", 3)); got.Verdict != fallback.InGrace {
		t.Errorf("Lock of a hold that was missed: got %v, want in grace", got.Verdict)
	}
	for _, tt := range []struct {
		key  string
		row  fallback.Row
		want fallback.Verdict
	}{
		{"missed", fallback.Row{Identity: id("late", 1), Token: missed.Token}, fallback.Granted},
		{"known", fallback.Row{Identity: id("early", 1), Token: known.Token}, fallback.Granted},
		{"released", fallback.Row{Identity: id("late", 2), Token: again.Token}, fallback.Granted},
		{"released", fallback.Row{Identity: id("early", 2), Token: released.Token}, fallback.Lost},
	} {
		if v, err := redisarbiter.ReclaimRow(t.Context(), n, 0, tt.key, tt.row); err != nil || v != tt.want {
			t.Errorf("ReclaimRow of %q for %v: got %v, %v, want %v", tt.key, tt.row.Identity, v, err, tt.want)
		}
	}
	if v, err := redisarbiter.ReclaimOwner(t.Context(), n, 1, "late", owned.Record.Epoch); err != nil || v != fallback.Granted {
		t.Errorf("ReclaimOwner: got %v, %v, want granted", v, err)
	}
	for _, session := range []string{"early", "late"} {
		if r, err := n.Renew(t.Context(), session, fallback.Registration{TTL: time.Hour}); err != nil || !r.Alive || r.Grace <= 0 {
			t.Errorf("Renew of %s: got %+v, %v, want alive and in Grace", session, r, err)
		}
	}
}

// A is the primary, then B, then A again, with all data: but A's clients were not told of B's
// grants.
func TestServerThatIsPromotedAgainIsAnotherOne(t *testing.T) {
	t.Parallel()
	a, b := redistest.Start(t, "--repl-diskless-sync-delay", "0"), redistest.Start(t, "--repl-diskless-sync-delay", "0")
	replicate(t, b, a)
	n := attach(t, a.Client(t), cold)
	wantGrace(t, n, plain, false)
	inStep(t, b, a)
	promote(t, b)
	replicate(t, a, b)
	promote(t, a)
	wantGrace(t, n, plain, true)
}

func TestEpochsCountSecondsByTheServersClock(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	before := time.Now().Unix()
	r, err := attach(t, s.Client(t), cold).Load(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if e := int64(r.Epoch) + redisarbiter.EpochZero; e < before || e > time.Now().Unix() {
		t.Errorf("the first epoch is that of %v", time.Unix(e, 0))
	}
}
