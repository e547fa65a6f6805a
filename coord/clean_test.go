package coord_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// crashed makes the session and the rows of a process that held locks and crashed.
func crashed(t *testing.T, a fallback.Arbiter, s fallback.Settings, session string, locks int, ttl time.Duration) fallback.Namespace {
	t.Helper()
	ns := must(a.Attach(t.Context(), s))
	t.Cleanup(func() { _ = ns.Close() })
	if _, err := ns.Open(t.Context(), session, fallback.Registration{TTL: ttl}); err != nil {
		t.Fatal(err)
	}
	for i := range locks {
		key := fmt.Sprint(session, i)
		ans := must(ns.Lock(t.Context(), fallback.LockRequest{Partition: uint32(xxhash.Sum64String(key) % uint64(s.Partitions)), Key: key,
			Me: fallback.Identity{Session: session, Request: uint64(i + 1)}, Block: 1}))
		if ans.Verdict != fallback.Granted {
			t.Fatal(ans)
		}
	}
	return ns
}

func rowsLeft(t *testing.T, ns fallback.Namespace, session string, partitions int) (n int) {
	t.Helper()
	var all []uint32
	for p := range partitions {
		all = append(all, uint32(p))
	}
	for _, rows := range must(ns.(fallback.Lister).Rows(context.WithoutCancel(t.Context()), all)) {
		for _, row := range rows {
			if row.Session == session {
				n++
			}
		}
	}
	return n
}

// The rows of a process that crashed are removed though no caller wants their keys, and no others.
func TestClean_RowsOfACrashedProcess(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		s := fallback.Settings{Namespace: "holdfast", Partitions: 101, Grace: 12 * time.Second}
		ns := crashed(t, a, s, "crashed", 1000, 10*time.Second)
		crashed(t, a, s, "alive", 100, time.Hour)
		c := start(t, a, &coord.Options{Partitions: 101})
		own := lock(t, c, "mine")
		time.Sleep(8 * time.Second)
		if n := rowsLeft(t, ns, "crashed", 101); n != 1000 {
			t.Errorf("%d rows of a session that has not expired, want 1000", n)
		}
		time.Sleep(3 * time.Minute) // 101 partitions, 32 in 30 s
		if n := rowsLeft(t, ns, "crashed", 101); n != 0 {
			t.Errorf("%d rows of the crashed process are left", n)
		}
		if n := rowsLeft(t, ns, "alive", 101); n != 100 {
			t.Errorf("%d rows of the one that lives, want 100", n)
		}
		if err := own.Context().Err(); err != nil {
			t.Error(err)
		}
		unlock(t, own)
	})
}

// Requests of processes that crashed while they waited for a key do not stay in its queue for as
// long as it is held.
func TestClean_WaitersOfCrashedProcesses(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		s := fallback.Settings{Namespace: "holdfast", Partitions: 61, Grace: 12 * time.Second}
		p := uint32(xxhash.Sum64String("k") % 61)
		c := start(t, a, nil)
		l := lock(t, c, "k")
		var ns fallback.Namespace
		wait := func(session, name string, ttl time.Duration) {
			t.Helper()
			ns = crashed(t, a, s, session, 0, ttl)
			ans := must(ns.Lock(t.Context(), fallback.LockRequest{Partition: p, Key: name, Me: fallback.Identity{Session: session, Request: 1}, Block: 1, Wait: true}))
			if ans.Verdict != fallback.Held {
				t.Fatal(ans)
			}
		}
		waiting := func() (sessions []string) {
			t.Helper()
			for _, w := range must(ns.(fallback.WaiterLister).Waiters(t.Context(), p, "k", 1000)) {
				sessions = append(sessions, w.Session)
			}
			return sessions
		}
		wait("alive", "k", time.Hour)
		for i := range 60 {
			session := fmt.Sprint("crashed", i)
			wait(session, []string{"k", fallback.SharedName("k", session)}[i%2], 10*time.Second)
		}
		time.Sleep(9 * time.Second)
		if all := waiting(); len(all) != 61 {
			t.Errorf("%d sessions wait, none of which has expired: want 61", len(all))
		}
		time.Sleep(3 * time.Minute) // 61 partitions, 32 in 30 s
		if all := waiting(); len(all) != 1 || all[0] != "alive" {
			t.Errorf("in the queue: %q", all)
		}
		if err := l.Context().Err(); err != nil {
			t.Error(err)
		}
		unlock(t, l)
	})
}

// silentArbiter delivers no messages.
type silentArbiter struct{ fallback.Arbiter }

type silentSpace struct {
	fallback.Namespace
	fallback.Lister
}

func (a silentArbiter) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := a.Arbiter.Attach(ctx, s)
	if err != nil {
		return nil, err
	}
	return silentSpace{n, n.(fallback.Lister)}, nil
}

func (silentSpace) Mute() bool { return true }

func (silentSpace) Listen(context.Context, string, func(fallback.Message)) (func(), error) {
	return func() {}, nil
}

// The arbiter loses that a lock was given back, and does not tell that another process wants it:
// the row of a session that lives is in the way, for that process and for others.
func TestClean_AReleaseThatWasLost(t *testing.T) {
	for _, own := range []bool{true, false} {
		bubble(t, func(t *testing.T, a *fallback.Memory) {
			one, two := start(t, silentArbiter{a}, nil), start(t, silentArbiter{a}, nil)
			l, r := lock(t, one, "k"), rlock(t, one, "read")
			kept := lock(t, one, "kept")
			before := a.Snapshot()
			unlock(t, l)
			runlock(t, r)
			time.Sleep(5 * time.Second)
			a.Restore(before)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c := two
			if own {
				c = one
			}
			for _, key := range []string{"k", "read"} {
				l, err := c.Lock(ctx, key)
				if err != nil {
					t.Fatalf("by the same process: %t: %v", own, err)
				}
				unlock(t, l)
			}
			if err := kept.Context().Err(); err != nil {
				t.Error(err)
			}
			unlock(t, kept)
		})
	}
}

func TestClean_OverRedis(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	server := redistest.Start(t)
	a := overRedis(t, server)
	s := fallback.Settings{Namespace: "holdfast", Partitions: 3, Grace: 2 * time.Second}
	ns := crashed(t, a, s, "crashed", 5000, time.Second)
	start(t, a, &coord.Options{Partitions: 3, SessionTTL: time.Second, Grace: 2 * time.Second})
	var seen []int
	await.Within(t, time.Minute, "no rows are left", func() bool {
		n := rowsLeft(t, ns, "crashed", 3)
		seen = append(seen, n)
		return n == 0
	})
	if slices.Max(seen) != 5000 {
		t.Errorf("%d rows at first, want 5000", slices.Max(seen))
	}
}

// A caller waits for a key of a crashed process until the owner has asked whether that one is dead.
// It does not wait for the owner's next look, which is RenewEvery later.
func TestClean_ARowOfACrashedProcessKeepsNoCallerWaiting(t *testing.T) {
	a := fallback.NewMemory()
	o := unhurried()
	o.RenewEvery, o.RetryEvery = 15*time.Second, time.Second
	s := fallback.Settings{Namespace: "holdfast", Partitions: 61, Grace: o.Grace}
	crashed(t, a, s, "crashed", 1, time.Millisecond)
	c := join(t, a, o)
	settled(t, 61, c)
	ctx, cancel := context.WithTimeout(t.Context(), o.RenewEvery/2)
	defer cancel()
	l, err := c.Lock(ctx, "crashed0")
	if err != nil {
		t.Fatal(err)
	}
	unlock(t, l)
}
