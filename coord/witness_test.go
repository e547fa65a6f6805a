package coord_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// A backup is restored into a server that runs: its data are older, its identity is the same.

// turns locks and unlocks keys of all partitions, and returns the tokens.
func turns(t *testing.T, c *coord.Coordinator, keys int) []coord.Fence {
	t.Helper()
	var all []coord.Fence
	for i := range keys {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		l, err := c.Lock(ctx, fmt.Sprint("k", i))
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l.Fence())
		unlock(t, l)
	}
	return all
}

func wantHigher(t *testing.T, before, after []coord.Fence) {
	t.Helper()
	for i := range before {
		if after[i] <= before[i] {
			t.Errorf("k%d: token %v after %v", i, after[i], before[i])
		}
	}
}

func TestOlderDataUnderTheSameIdentityIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		opts := &coord.Options{Partitions: 4, Handoff: coord.Handoff{Linger: -1}}
		here, there := start(t, a, opts), start(t, a, opts)
		turns(t, here, 8)
		turns(t, there, 8)
		time.Sleep(time.Second) // released keys are back by now
		backup := a.Snapshot()
		held := lock(t, here, "held")
		before := turns(t, here, 8)
		time.Sleep(time.Second)
		a.Rewind(backup)

		if l, err := here.TryLock(t.Context(), "k0"); !errors.Is(err, coord.ErrUnavailable) {
			t.Errorf("TryLock by the process that knows better: got %v, %v", l, err)
		}
		time.Sleep(5 * time.Second) // in Grace it is reclaimed
		if err := held.Context().Err(); err != nil {
			t.Errorf("what was held is lost: %v", err)
		}
		after := turns(t, here, 8)
		wantHigher(t, before, after)
		if _, err := there.TryLock(t.Context(), "held"); !errors.Is(err, coord.ErrLocked) {
			t.Errorf("TryLock of what is held: got %v, want ErrLocked", err)
		}
		wantHigher(t, after, turns(t, there, 8))
		unlock(t, held)
	})
}

// A process that neither locks nor owns notices it as well, from its holds.
func TestOlderDataAreNoticedByAHolder(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		opts := &coord.Options{Partitions: 1}
		here, there := start(t, a, opts), start(t, a, opts)
		backup := a.Snapshot()
		held := lock(t, here, "held")
		a.Rewind(backup)
		time.Sleep(3 * time.Second) // RenewEvery
		if err := held.Context().Err(); err != nil {
			t.Errorf("what was held is lost: %v", err)
		}
		if l, err := there.TryLock(t.Context(), "held"); !errors.Is(err, coord.ErrUnavailable) {
			t.Errorf("TryLock in Grace: got %v, %v", l, err)
		}
		time.Sleep(15 * time.Second)
		if l, err := there.TryLock(t.Context(), "held"); !errors.Is(err, coord.ErrLocked) {
			t.Errorf("TryLock after Grace: got %v, %v", l, err)
		}
		unlock(t, held)
	})
}

// Acts of an operator, or of the host, on a server that goes on running. A snapshot of the machine
// is like DEBUG RELOAD NOSAVE: the same process has the data of before.
func TestBackupRestoredIntoARunningRedisIsRefused(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	for name, backup := range map[string]func(t *testing.T, c *redis.Client) (restore func() error){
		"RESTORE": func(t *testing.T, c *redis.Client) func() error {
			data := make(map[string]string)
			for _, key := range must(c.Keys(t.Context(), "*}").Result()) {
				data[key] = must(c.Dump(t.Context(), key).Result())
			}
			return func() (err error) {
				for key, text := range data {
					err = errors.Join(err, c.RestoreReplace(t.Context(), key, 0, text).Err())
				}
				return err
			}
		},
		"DEBUG RELOAD NOSAVE": func(t *testing.T, c *redis.Client) func() error {
			if err := c.Save(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			return func() error { return c.Do(t.Context(), "DEBUG", "RELOAD", "NOSAVE").Err() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, "--enable-debug-command", "yes")
			client := s.Client(t)
			c := start(t, overRedis(t, s), &coord.Options{Partitions: 2, Handoff: coord.Handoff{Linger: -1},
				SessionTTL: 2 * time.Second, Grace: 3 * time.Second})
			turns(t, c, 4)
			identity := must(client.InfoMap(t.Context(), "replication").Result())["Replication"]["master_replid"]
			restore := backup(t, client)
			before := turns(t, c, 4)
			if err := restore(); err != nil {
				t.Fatal(err)
			}
			if now := must(client.InfoMap(t.Context(), "replication").Result())["Replication"]["master_replid"]; now != identity || now == "" {
				t.Fatalf("the server was %q and is %q: it tells by itself that it is another one", identity, now)
			}
			begin := time.Now()
			wantHigher(t, before, turns(t, c, 4))
			if d := time.Since(begin); d < time.Second {
				t.Errorf("it took %v: there was no Grace", d)
			}
		})
	}
}

// A process that has seen one token of a partition locks first. The grant uses up the token that
// tells of older data.
func TestOlderDataAreNoticedByTheOnlyTokenSeen(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		opts := &coord.Options{Partitions: 1, Handoff: coord.Handoff{Linger: -1}}
		here, there := start(t, a, opts), start(t, a, opts)
		backup := a.Snapshot()
		turns(t, here, 1)
		time.Sleep(time.Second) // released keys are back by now
		held := lock(t, there, "held")
		a.Rewind(backup)

		for range 3 {
			time.Sleep(100 * time.Millisecond)
			if l, err := here.TryLock(t.Context(), "held"); !errors.Is(err, coord.ErrUnavailable) {
				t.Fatalf("TryLock by the process that knows better: got %v, %v, with %v held", l.Fence(), err, held.Fence())
			}
		}
		time.Sleep(5 * time.Second) // in Grace it is reclaimed
		if err := held.Context().Err(); err != nil {
			t.Errorf("what was held is lost: %v", err)
		}
		unlock(t, held)
	})
}

// A backup of when this process owned the partition names it as the owner. The process has seen a
// later epoch, and must not demote that one: the record would be a new one, and nothing would tell
// that it is of older data.
func TestOlderDataThatNameThisProcessAreNotDemoted(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		ctx := t.Context()
		opts := &coord.Options{Partitions: 1, Handoff: coord.Handoff{Linger: -1}}
		here, there := start(t, a, opts), start(t, a, opts)
		ns := must(a.Attach(ctx, fallback.Settings{Namespace: "holdfast", Partitions: 1, Grace: 12 * time.Second}))
		defer ns.Close()
		l := lock(t, here, "own")
		me := ns.Verify(ctx, []fallback.Read{{Partition: 0, Keys: []string{"own"}}})[0].Rows[0].Session
		unlock(t, l)
		time.Sleep(time.Second) // released keys are back by now
		got := must(ns.Acquire(ctx, 0, me, fallback.Expect{Epoch: must(ns.Load(ctx, 0)).Epoch}))
		backup := a.Snapshot()
		must(ns.Demote(ctx, 0, me, got.Record.Epoch, nil))
		turns(t, here, 1)
		held := lock(t, there, "held")
		a.Rewind(backup)

		for range 3 {
			if l, err := here.TryLock(ctx, "held"); err == nil {
				t.Fatalf("two holders: %v and %v", held.Fence(), l.Fence())
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(5 * time.Second) // in Grace it is reclaimed
		if err := held.Context().Err(); err != nil {
			t.Errorf("what was held is lost: %v", err)
		}
		unlock(t, held)
	})
}
