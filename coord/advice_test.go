package coord_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// A server that begins to evict keys while processes run is told of, once for each change.
func TestAdvice_APolicyThatIsChangedWhileTheServerRuns(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	s := redistest.Start(t)
	client, log := s.Client(t), newRecords()
	c := start(t, overRedis(t, s), &coord.Options{Partitions: 1, SessionTTL: time.Second, Grace: 2 * time.Second, Logger: slog.New(log)})
	set := func(policy string) {
		if err := client.ConfigSet(t.Context(), "maxmemory-policy", policy).Err(); err != nil {
			t.Fatal(err)
		}
	}
	told := func() int { return len(log.about("holdfast: the arbiter is not fit for locks any more")) }
	set("allkeys-lru")
	await.Within(t, time.Minute, "a record of the first change", func() bool { return told() == 1 })
	set("allkeys-random")
	await.Within(t, time.Minute, "a record of the second change", func() bool { return told() == 2 })
	if r := log.about("holdfast: the arbiter is not fit for locks any more")[1]; r.level != slog.LevelError {
		t.Errorf("level: got %v", r.level)
	}
	if r, err := c.Report(t.Context(), ""); err != nil || !strings.Contains(r.Unfit, "allkeys-random") || !c.Stats().Unfit {
		t.Errorf("the report: %q, %v; Unfit %v", r.Unfit, err, c.Stats().Unfit)
	}
	set("noeviction")
	await.Within(t, time.Minute, "it is fit again", func() bool { return !c.Stats().Unfit })
	if n := told(); n != 2 {
		t.Errorf("%d records of two changes", n)
	}
}

// A process that starts at a server with Redis's default replication says which settings to use;
// one that waits for replicas does not.
func TestAdvice_DefaultReplicationIsToldAtTheStart(t *testing.T) {
	t.Parallel()
	s, replica := redistest.Start(t, "--repl-diskless-sync-delay", "0"), redistest.Start(t)
	if err := replica.Replicate(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	client := s.Client(t)
	await.Within(t, time.Minute, "a replica that acknowledges", func() bool {
		return strings.Contains(client.Info(t.Context(), "replication").Val(), "state=online")
	})
	for _, x := range []struct {
		replicas int
		told     bool
	}{{0, true}, {1, false}} {
		log := newRecords()
		a := redisarbiter.New(client, &redisarbiter.Options{ColdStart: true, Replicas: x.replicas, ReplicaTimeout: 10 * time.Second})
		c := start(t, a, &coord.Options{Partitions: 1, Logger: slog.New(log)})
		about := func() []record { return log.about("holdfast: the arbiter's settings make locks less safe") }
		if x.told {
			await.Within(t, time.Minute, "a record", func() bool { return len(about()) == 1 })
			r := about()[0]
			if text := r.attrs["advice"].String(); r.level != slog.LevelWarn || !strings.Contains(text, "redisarbiter.Options.Replicas") || !strings.Contains(text, "min-replicas-to-write") {
				t.Errorf("%v", r)
			}
		}
		if err := c.Close(t.Context()); err != nil { // it waits for the work in the background
			t.Error(err)
		}
		if n := len(about()); n != 1 && x.told || n != 0 && !x.told {
			t.Errorf("Replicas %d: %d records", x.replicas, n)
		}
	}
}

// A server's clock that is set years ahead ends all sessions. The log says that it is the clock.
func TestAdvice_AClockThatIsSetYearsAhead(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	s, clock := redistest.StartClocked(t)
	log := newRecords()
	c := start(t, overRedis(t, s), &coord.Options{Partitions: 1, SessionTTL: time.Second, Grace: 2 * time.Second, Logger: slog.New(log)})
	if err := clock.Set(11 * 365 * 24 * time.Hour); err != nil {
		t.Fatal(err)
	}
	about := func() []record { return log.about("holdfast: the arbiter is not fit for locks any more") }
	await.Within(t, time.Minute, "a record", func() bool { return len(about()) > 0 })
	if r := about()[0]; r.level != slog.LevelError || !strings.Contains(fmt.Sprint(r.attrs["error"]), "clock is more than a year ahead") {
		t.Errorf("%v", r)
	}
	await.Within(t, time.Minute, "an error of a lock that names the clock", func() bool {
		_, err := c.TryRLock(t.Context(), "k") // an exclusive lock of a free key looks at no clock, at Redis: quick.lua
		return errors.Is(err, coord.ErrUnavailable) && strings.Contains(err.Error(), "clock is years ahead")
	})
	if err := clock.Set(0); err != nil {
		t.Fatal(err)
	}
	l, err := c.Lock(t.Context(), "k")
	if err != nil {
		t.Fatalf("when the clock is right again: %v", err)
	}
	if err := l.Unlock(); err != nil {
		t.Error(err)
	}
}
