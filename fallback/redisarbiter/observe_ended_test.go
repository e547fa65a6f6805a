package redisarbiter_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// A session that has ended keeps no process waiting that needs a longer Grace: the one that waits
// sees that it stands still.
func TestObserver_ALongerGraceAfterAStop(t *testing.T) {
	c := redistest.Start(t).Client(t)
	old, young := diffSettings, longSettings
	old.Lease, young.Lease = time.Second, time.Second
	const life = 200 * time.Millisecond
	if _, err := attachTo(t, c, observed, old).Open(t.Context(), "old", fallback.Registration{TTL: life}); err != nil {
		t.Fatal(err)
	}
	n := attachTo(t, c, observed, young)
	began, waited := time.Now(), false
	await.Within(t, patience, "the session is opened", func() bool {
		_, err := n.Open(t.Context(), "young", fallback.Registration{TTL: time.Hour})
		if err != nil && !errors.Is(err, fallback.ErrWait) {
			t.Fatal(err)
		}
		waited = waited || err != nil
		return err == nil
	})
	if took := time.Since(began); !waited || took < life {
		t.Errorf("it was opened after %v, and the other one may have lived for %v", took, life)
	}
	if _, ttl := entryOf(t, c, "old"); ttl != 0 {
		t.Errorf("the time to live of the session that was declared dead is %d", ttl)
	}
}

// One that its guardians had buried is waited for until its entry is gone, as with the server's
// clock.
func TestObserver_ALongerGraceWaitsForTheBuried(t *testing.T) {
	c := redistest.Start(t).Client(t)
	old, young := diffSettings, longSettings
	old.Lease, young.Lease = time.Second, time.Second
	n := attachTo(t, c, observed, old)
	g := fallback.Guardians{Version: 1, Set: []string{"x"}}
	if _, err := n.Open(t.Context(), "old", fallback.Registration{TTL: time.Hour, Guardians: g}); err != nil {
		t.Fatal(err)
	}
	if b, err := n.(fallback.Burier).Bury(t.Context(), "old", 1, g.Set); err != nil || !b.Dead {
		t.Fatal(b, err)
	}
	n = attachTo(t, c, observed, young)
	for range 3 {
		if _, err := n.Open(t.Context(), "young", fallback.Registration{TTL: time.Hour}); !errors.Is(err, fallback.ErrWait) {
			t.Errorf("Open: %v", err)
		}
	}
	beat, _ := entryOf(t, c, "old")
	if err := redisarbiter.EndGrace(t.Context(), n, -1, 0, time.Hour, "old", beat); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Open(t.Context(), "young", fallback.Registration{TTL: time.Hour}); err != nil {
		t.Errorf("when the entry is gone: %v", err)
	}
}

// A session that a process has seen stand still is dead as soon as it asks, before the next renewal
// sweeps. One that was renewed since is not.
func TestObserver_DeclaresDeadWhatItAsksAbout(t *testing.T) {
	c := redistest.Start(t).Client(t)
	n := attachTo(t, c, observed, diffSettings)
	openSession(t, n, "a")
	beat, ttl := entryOf(t, c, "a")
	if redisarbiter.AgeSession(n, "a", beat-1, ttl); deadSession(t, n, "a").Dead {
		t.Fatal("declared dead by a beat of before")
	}
	if redisarbiter.AgeSession(n, "a", beat, ttl); !deadSession(t, n, "a").Dead {
		t.Error("not declared dead")
	}
	if _, ttl := entryOf(t, c, "a"); ttl != 0 {
		t.Errorf("the time to live of its entry is %d", ttl)
	}
}

// A beat is no time: the entry of a process whose clock says 1970 stays until the session is seen
// to stand still.
func TestObserver_ABeatIsNoTime(t *testing.T) {
	c := redistest.Start(t).Client(t)
	n := attachTo(t, c, observed, diffSettings)
	openSession(t, n, "a")
	text := c.HGet(t.Context(), sessionsKey, "s:a").Val()
	_, rest, _ := strings.Cut(text, " ")
	if err := c.HSet(t.Context(), sessionsKey, "s:a", "1 "+rest).Err(); err != nil {
		t.Fatal(err)
	}
	openSession(t, n, "b")
	if beat, ttl := entryOf(t, c, "a"); beat != 1 || ttl == 0 {
		t.Errorf("its entry: got beat %d, time to live %d", beat, ttl)
	}
	if deadSession(t, n, "a").Dead {
		t.Error("it is dead")
	}
}
