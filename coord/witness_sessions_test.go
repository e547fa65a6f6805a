package coord_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// A table of sessions from before a holder's session began does not make the holder dead: neither
// for the holder, nor for a process that asks.
func TestSession_IsNotDeadByABackupOfBefore(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	opts := func() *coord.Options {
		return &coord.Options{Partitions: 1, Handoff: coord.Handoff{Linger: -1}, SessionTTL: 2 * time.Second, Grace: 3 * time.Second}
	}
	there := start(t, overRedis(t, s), opts())
	turns(t, there, 1)
	sessions := must(client.Keys(t.Context(), "*:s}").Result())[0]
	backup := must(client.Dump(t.Context(), sessions).Result())
	renewed := there.Stats().Calls[coord.OpRenew] // each quarter of a session's time: more than half of that has to pass
	await.Until(t, "the other session is renewed", func() bool { return there.Stats().Calls[coord.OpRenew] >= renewed+3 })
	here := start(t, overRedis(t, s), opts())
	held := lock(t, here, "held")
	if err := client.RestoreReplace(t.Context(), sessions, 0, backup).Err(); err != nil {
		t.Fatal(err)
	}
	await.Throughout(t, 5*time.Second, "there is one holder", func() bool {
		_, err := there.TryLock(t.Context(), "held") // it asks whether the session of the row is dead
		return err != nil
	})
	if err := held.Context().Err(); err != nil {
		t.Errorf("what was held is lost: %v", err)
	}
	for _, c := range []*coord.Coordinator{here, there} {
		if n := c.Stats().Sessions; n != 1 {
			t.Errorf("%d sessions, want 1", n)
		}
	}
	unlock(t, held)
}

// A session that a backup lists, though it has ended, is over when it expires.
func TestSession_ThatABackupListsThoughItHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		opts := &coord.Options{Partitions: 1, Handoff: coord.Handoff{Linger: -1}}
		here, gone := start(t, a, opts), start(t, a, opts)
		l := lock(t, gone, "k")
		backup := a.Snapshot()
		unlock(t, l)
		if err := gone.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		turns(t, here, 1)
		time.Sleep(time.Second)
		a.Rewind(backup) // with the session of the other, and its row
		begin := time.Now()
		l = lock(t, here, "k")
		if d := time.Since(begin); d > 25*time.Second {
			t.Errorf("it took %v", d)
		}
		unlock(t, l)
	})
}

// In a cluster over Redis all keys of the namespace are restored while nodes run and hold locks, at
// Redis and from each other.
func TestCluster_ABackupIsRestoredIntoARunningRedis(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	opts := func() *coord.Options {
		return &coord.Options{Partitions: 7, Cluster: &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0"}, SessionTTL: 4 * time.Second, Grace: 6 * time.Second}
	}
	first, second := start(t, overRedis(t, s), opts()), start(t, overRedis(t, s), opts())
	settle := func(all ...*coord.Coordinator) {
		for _, c := range all {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := c.Settled(ctx, len(all)); err != nil {
				t.Fatal(err)
			}
		}
	}
	settle(first, second)
	turns(t, first, 14)
	backup := make(map[string]string)
	for _, key := range must(client.Keys(t.Context(), "*}").Result()) {
		backup[key] = must(client.Dump(t.Context(), key).Result())
	}
	third := start(t, overRedis(t, s), opts()) // the backup does not know of it
	settle(first, second, third)
	var held []coord.Lock
	for i, c := range []*coord.Coordinator{first, second, third} {
		held = append(held, lock(t, c, string(rune('a'+i))))
	}
	before := turns(t, second, 14)
	for key, data := range backup {
		if err := client.RestoreReplace(t.Context(), key, 0, data).Err(); err != nil {
			t.Fatal(err)
		}
	}
	wantHigher(t, before, turns(t, second, 14))
	settle(first, second, third)
	last := turns(t, third, 14)
	wantHigher(t, before, last)
	for i, l := range held {
		if err := l.Context().Err(); err != nil {
			t.Errorf("lock %d is lost: %v", i, err)
			continue
		}
		for _, c := range []*coord.Coordinator{first, second, third} {
			if twice, err := c.TryLock(t.Context(), l.Key()); err == nil {
				t.Errorf("%q has two holders, with %v and %v", l.Key(), l.Fence(), twice.Fence())
			}
		}
		unlock(t, l)
	}
	for _, c := range []*coord.Coordinator{first, second, third} {
		if n := c.Stats().Sessions; n != 1 {
			t.Errorf("%d sessions, want 1", n)
		}
	}
	look := must(overRedis(t, s).Attach(t.Context(), fallback.Settings{Namespace: "holdfast", Partitions: 7, Grace: 6 * time.Second}))
	defer look.Close()
	// In Grace nothing can be given back, which Close says. It begins at the next renewal in the
	// last partitions.
	quiet := time.Now()
	await.Until(t, "no Grace for 3 s", func() bool {
		for p := range uint32(7) {
			if must(look.Load(t.Context(), p)).Grace > 0 {
				quiet = time.Now()
			}
		}
		return time.Since(quiet) > 3*time.Second
	})
}
