package redisarbiter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

var observed = &redisarbiter.Options{ColdStart: true, ObserverClock: true}

func TestRedisConformsWithoutItsClock(t *testing.T) {
	takes.Seconds(t)
	shared := redistest.Start(t)
	arbitertest.Run(t, arbitertest.Fixture{
		New: func(t *testing.T) fallback.Arbiter { return redisarbiter.New(dial(t, shared.Addr), observed) },
		NewServer: func(t *testing.T) arbitertest.Server {
			s, clock := redistest.StartClocked(t)
			var ahead time.Duration
			return arbitertest.Server{
				Arbiter: redisarbiter.New(s.Client(t), observed),
				Save:    func() { save(t, s) },
				Crash:   func() { restart(t, s) },
				Step: func(by time.Duration) {
					ahead += by
					if err := clock.Set(ahead); err != nil {
						t.Fatal(err)
					}
				},
			}
		},
	})
}

// entryOf returns the beat and the time to live of a session, as Redis has them.
func entryOf(t *testing.T, c *redis.Client, id string) (beat, ttl int64) {
	t.Helper()
	text := c.HGet(t.Context(), sessionsKey, "s:"+id).Val()
	if _, err := fmt.Sscanf(text, "%d %d", &beat, &ttl); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return beat, ttl
}

func openSession(t *testing.T, n fallback.Namespace, id string) {
	t.Helper()
	if r, err := n.Open(t.Context(), id, fallback.Registration{TTL: time.Hour}); err != nil || !r.Alive {
		t.Fatalf("Open: got %+v, %v", r, err)
	}
}

func deadSession(t *testing.T, n fallback.Namespace, id string) fallback.Liveness {
	t.Helper()
	l, err := n.Dead(t.Context(), id, fallback.Stamp{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A sweep takes effect on exactly the beat that a process has seen for long enough, and not in
// Grace.
func TestObserver_SweepsWhatItHasSeen(t *testing.T) {
	c := redistest.Start(t).Client(t)
	n := attachTo(t, c, observed, diffSettings)
	sweep := func(id string, beat int64) {
		t.Helper()
		if err := redisarbiter.EndGrace(t.Context(), n, -1, 0, time.Hour, id, beat); err != nil {
			t.Fatal(err)
		}
	}
	openSession(t, n, "a")
	beat, _ := entryOf(t, c, "a")
	if sweep("a", beat-1); deadSession(t, n, "a").Dead {
		t.Fatal("declared dead by another beat")
	}
	if answer, _, err := redisarbiter.LateRenewal(t.Context(), n, "a", beat-1, 0); err != nil || answer != "alive" {
		t.Fatalf("a late renewal: got %q, %v", answer, err)
	}
	if after, _ := entryOf(t, c, "a"); after != beat {
		t.Errorf("a late renewal made the beat %d, of %d", after, beat)
	}
	if sweep("a", beat); !deadSession(t, n, "a").Dead {
		t.Fatal("not declared dead")
	}
	if answer, _, err := redisarbiter.LateRenewal(t.Context(), n, "a", beat+1, 0); err != nil || answer != "dead" {
		t.Errorf("Renew of one that was declared dead: got %q, %v", answer, err)
	}
	if after, ttl := entryOf(t, c, "a"); after != beat || ttl != 0 {
		t.Errorf("its entry: got beat %d, time to live %d", after, ttl)
	}
	if sweep("a", beat); c.HExists(t.Context(), sessionsKey, "s:a").Val() {
		t.Error("its entry stays")
	}
	openSession(t, n, "b")
	beat, _ = entryOf(t, c, "b")
	if err := c.HSet(t.Context(), sessionsKey, "i", "another", "u", "another name").Err(); err != nil {
		t.Fatal(err)
	}
	if sweep("b", beat); deadSession(t, n, "b").Grace == 0 {
		t.Error("not in Grace")
	}
	if _, ttl := entryOf(t, c, "b"); ttl == 0 {
		t.Error("declared dead in Grace")
	}
}

func TestObserver_EndsTheGraceThatItHasSeen(t *testing.T) {
	c := redistest.Start(t).Client(t)
	n := attachTo(t, c, observed, diffSettings)
	change := func() {
		t.Helper()
		err := errors.Join(c.HSet(t.Context(), sessionsKey, "i", "another", "u", "another name").Err(),
			c.HSet(t.Context(), recordKey(0), "i", "another", "u", "another").Err())
		if err != nil {
			t.Fatal(err)
		}
	}
	inGrace := func() (sessions, partition bool) {
		t.Helper()
		r, err := n.Load(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		return deadSession(t, n, "nobody").Grace != 0, r.Grace != 0
	}
	names := func() (sessions, partition int64) {
		t.Helper()
		_, err := fmt.Sscan(c.HGet(t.Context(), sessionsKey, "g").Val(), &sessions)
		_, err2 := fmt.Sscan(strings.Fields(c.HGet(t.Context(), recordKey(0), "m").Val())[2], &partition)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		return sessions, partition
	}
	end := func(sessions, partition int64, length time.Duration) {
		t.Helper()
		if err := errors.Join(redisarbiter.EndGrace(t.Context(), n, -1, sessions, length), redisarbiter.EndGrace(t.Context(), n, 0, partition, length)); err != nil {
			t.Fatal(err)
		}
	}
	maxmemory := func(bytes string) {
		t.Helper()
		if err := c.ConfigSet(t.Context(), "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
	}
	record := func() string { return c.HGet(t.Context(), recordKey(0), "m").Val() }
	before := record()
	if end(0, 0, time.Hour); record() != before {
		t.Errorf("a Grace that is none has ended: the record is %q, of %q", record(), before)
	}
	change()
	inGrace()
	s1, p1 := names()
	change()
	maxmemory("1")
	end(s1, p1, time.Hour) // it is the first to see that server
	maxmemory("0")
	if i := c.HGet(t.Context(), recordKey(0), "i").Val(); i == "another" {
		t.Error("another server's Grace has ended")
	}
	inGrace()
	s2, p2 := names()
	if s1 == s2 || p1 == p2 {
		t.Fatal("two Graces have the same name")
	}
	for _, wrong := range []func(){
		func() { end(s1, p1, time.Hour) },
		func() { end(s2, p2, time.Hour-time.Millisecond) },
	} {
		wrong()
		if sessions, partition := inGrace(); !sessions || !partition {
			t.Errorf("in Grace: sessions %t, partition %t", sessions, partition)
		}
	}
	// Older data in Grace are no news, and a full server ends Grace as well.
	openSession(t, n, "a")
	beat, _ := entryOf(t, c, "a")
	if answer, _, err := redisarbiter.LateRenewal(t.Context(), n, "a", beat, beat+1); err != nil || answer != "alive" {
		t.Errorf("a renewal in Grace: got %q, %v", answer, err)
	}
	if now, _ := names(); now != s2 {
		t.Error("another Grace of the sessions has begun in it")
	}
	maxmemory("1")
	end(s2, p2, time.Hour)
	if sessions, partition := inGrace(); sessions || partition {
		t.Errorf("still in Grace: sessions %t, partition %t", sessions, partition)
	}
}

// By the server's clock Grace is over when it is, whatever a process has seen.
func TestObserver_EndsNoGraceOfTheServersClock(t *testing.T) {
	c := redistest.Start(t).Client(t)
	n := attachTo(t, c, cold, diffSettings)
	if err := errors.Join(c.HSet(t.Context(), sessionsKey, "i", "another", "u", "another name").Err(),
		c.HSet(t.Context(), recordKey(0), "i", "another", "u", "another").Err()); err != nil {
		t.Fatal(err)
	}
	inGrace := func() bool {
		r, err := n.Load(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		return r.Grace > 0 && deadSession(t, n, "nobody").Grace > 0
	}
	if !inGrace() {
		t.Fatal("not in Grace")
	}
	var sessions, partition int64
	_, err := fmt.Sscan(c.HGet(t.Context(), sessionsKey, "g").Val(), &sessions)
	_, err2 := fmt.Sscan(strings.Fields(c.HGet(t.Context(), recordKey(0), "m").Val())[2], &partition)
	if err := errors.Join(err, err2, redisarbiter.EndGrace(t.Context(), n, -1, sessions, time.Hour), redisarbiter.EndGrace(t.Context(), n, 0, partition, time.Hour)); err != nil {
		t.Fatal(err)
	}
	if !inGrace() {
		t.Error("Grace has ended")
	}
}

// A namespace stays as it was made.
func TestObserver_IsANamespacesOwn(t *testing.T) {
	c := redistest.Start(t).Client(t)
	a := attachTo(t, c, observed, diffSettings)
	if b := attachTo(t, c, cold, diffSettings); !redisarbiter.HasObserver(b) {
		t.Error("a process without the option goes by the server's clock")
	}
	s := diffSettings
	s.Namespace = "clock"
	if redisarbiter.HasObserver(attachTo(t, c, cold, s)) {
		t.Error("without the option, the server's clock does not count")
	}
	if _, err := redisarbiter.New(c, observed).Attach(t.Context(), s); !errors.Is(err, fallback.ErrMismatch) || !strings.Contains(err.Error(), "ObserverClock") {
		t.Errorf("a namespace that was made without: got %v", err)
	}
	if got, err := redisarbiter.New(c, nil).Describe(t.Context(), diffSettings.Namespace); err != nil || got.Partitions != diffSettings.Partitions {
		t.Errorf("Describe: got %+v, %v", got, err)
	}
	// The data are lost, and another process makes the namespace anew, in the other way.
	openSession(t, a, "a")
	if err := c.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	attachTo(t, c, cold, diffSettings)
	if _, err := a.Renew(t.Context(), "a", fallback.Registration{TTL: time.Hour}); err == nil || !strings.Contains(err.Error(), "ObserverClock") {
		t.Errorf("Renew of a process that goes by another clock: got %v", err)
	}
}

// A renewal tells of some sessions, where there are many. Of each it tells in the end.
func TestObserver_ManySessions(t *testing.T) {
	takes.Seconds(t)
	c := redistest.Start(t).Client(t)
	a, b := attachTo(t, c, observed, diffSettings), attachTo(t, c, observed, diffSettings)
	const many = 600
	for i := range many {
		if _, err := a.Open(t.Context(), fmt.Sprint("s", i), fallback.Registration{TTL: time.Millisecond}); err != nil {
			t.Fatal(err)
		}
	}
	openSession(t, b, "b")
	if _, entries, err := redisarbiter.LateRenewal(t.Context(), b, "b", 0, 0); err != nil || entries != 2*redisarbiter.SightingsAtOnce {
		t.Errorf("a renewal tells of %d fields and texts, want %d; %v", entries, 2*redisarbiter.SightingsAtOnce, err)
	}
	await.Within(t, patience, "all others are declared dead", func() bool {
		if _, err := b.Renew(t.Context(), "b", fallback.Registration{TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
		all, err := b.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		alive := 0
		for _, text := range c.HGetAll(context.Background(), sessionsKey).Val() {
			if f := strings.Fields(text); len(f) > 1 && strings.HasPrefix(f[1], "1;") {
				alive++
			}
		}
		return len(all.Sessions) == 1 && alive == 0
	})
}

// A new namespace goes by nothing that the server's clock says of how long the server has been up.
func TestObserver_ANewNamespaceIsInGrace(t *testing.T) {
	s, clock := redistest.StartClocked(t)
	if err := clock.Set(3 * time.Hour); err != nil {
		t.Fatal(err)
	}
	c := s.Client(t)
	await.Within(t, patience, "the server believes that it has been up for long", func() bool {
		_, after, _ := strings.Cut(c.Info(t.Context(), "server").Val(), "uptime_in_seconds:")
		var seconds int
		_, err := fmt.Sscan(after, &seconds)
		return err == nil && seconds > 2*3600
	})
	byClock := diffSettings
	byClock.Namespace = "clock"
	for _, x := range []struct {
		opts     *redisarbiter.Options
		settings fallback.Settings
		grace    bool
	}{
		{&redisarbiter.Options{ObserverClock: true}, diffSettings, true},
		{nil, byClock, false}, // which shows that the clock is believed there
	} {
		n := attachTo(t, c, x.opts, x.settings)
		r, err := n.Load(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if inGrace := r.Grace > 0; inGrace != x.grace {
			t.Errorf("ObserverClock %t: in Grace %t, want %t", x.opts != nil, inGrace, x.grace)
		}
	}
}

// Grace ends early by its name, which no clock changes, and the epoch is that of the end of the
// whole Grace.
func TestObserver_GraceEndsByItsName(t *testing.T) {
	c := redistest.Start(t).Client(t)
	n := attachTo(t, c, observed, diffSettings)
	if err := c.HSet(t.Context(), recordKey(0), "i", "another", "u", "another").Err(); err != nil {
		t.Fatal(err)
	}
	grace := func() (left time.Duration, epoch uint32, name fallback.NamedGrace) {
		t.Helper()
		r, err := n.Load(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		return r.Grace, r.Epoch, n.(fallback.Rounder).Graces(t.Context(), []uint32{0})[0]
	}
	end := func(g fallback.NamedGrace, want bool) {
		t.Helper()
		if a := n.(fallback.Rounder).EndGraces(t.Context(), []fallback.NamedGrace{g})[0]; a != (fallback.EndedGrace{Ended: want}) {
			t.Fatalf("by the name %q: %+v", g.Name, a)
		}
	}
	left, _, name := grace()
	if left == 0 || name.Name == "" || name.Err != nil {
		t.Fatalf("at another server: %v left, %+v", left, name)
	}
	end(fallback.NamedGrace{Name: name.Name + "1"}, false)
	if left, _, _ := grace(); left == 0 {
		t.Fatal("Grace has ended by another name")
	}
	end(name, true)
	left, epoch, name := grace()
	if least := uint32(time.Now().Add(diffSettings.Grace/2-time.Minute).Unix() - redisarbiter.EpochZero); left != 0 || name.Name != "" || epoch < least {
		t.Errorf("after its end: %v left, %+v, epoch %d, want at least %d", left, name, epoch, least)
	}
}

// The owner stays over a Grace that ends early. The epoch after it is half a Grace ahead of the
// server's clock, also with ObserverClock.
func TestGraceOfAnOwnerEndsEarly(t *testing.T) {
	for name, opts := range map[string]*redisarbiter.Options{"the server's clock": cold, "ObserverClock": observed} {
		t.Run(name, func(t *testing.T) {
			c := redistest.Start(t).Client(t)
			n := attachTo(t, c, opts, diffSettings)
			free, err := n.Load(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			owned, err := n.Acquire(t.Context(), 0, "a", fallback.Expect{Epoch: free.Epoch})
			if err != nil || owned.Verdict != fallback.Granted {
				t.Fatalf("%+v, %v", owned, err)
			}
			if err := c.HSet(t.Context(), recordKey(0), "i", "another", "u", "another").Err(); err != nil {
				t.Fatal(err)
			}
			if r, err := n.Load(t.Context(), 0); err != nil || r.Grace == 0 {
				t.Fatalf("at another server: %+v, %v", r, err)
			}
			by := n.(fallback.Rounder)
			named := by.Graces(t.Context(), []uint32{0})
			for _, first := range []bool{true, false} { // the answer to the first one may be lost
				if a := by.EndGraces(t.Context(), named)[0]; a != (fallback.EndedGrace{Ended: first}) {
					t.Fatalf("%+v, the first: %t", a, first)
				}
			}
			if r, err := n.Load(t.Context(), 0); err != nil || r.Grace != 0 || r.Owner != "a" || r.Epoch != owned.Record.Epoch {
				t.Fatalf("after its end: %+v, %v", r, err)
			}
			d, err := n.DemoteUnserved(t.Context(), 0, "a", owned.Record.Epoch)
			least := uint32(time.Now().Add(diffSettings.Grace/2).Unix() - redisarbiter.EpochZero)
			if err != nil || d.Record.Epoch < least-60 || d.Record.Epoch > least {
				t.Errorf("after the owner: %+v, %v; want an epoch of about %d", d, err, least)
			}
		})
	}
}
