package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/virtual"
)

var noClock = &fallback.RecordsOptions{NoClock: true}

func openSession(t *testing.T, n fallback.Namespace, session string) fallback.Renewal {
	t.Helper()
	r, err := n.Open(t.Context(), session, fallback.Registration{TTL: ttl * time.Millisecond})
	if err != nil || !r.Alive {
		t.Fatalf("Open: %+v, %v", r, err)
	}
	return r
}

func renewSession(t *testing.T, n fallback.Namespace, session string, seen int64) fallback.Renewal {
	t.Helper()
	r, err := n.Renew(t.Context(), session, fallback.Registration{TTL: ttl * time.Millisecond, Seen: seen})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func deadSession(t *testing.T, n fallback.Namespace, session string) fallback.Liveness {
	t.Helper()
	l, err := n.Dead(t.Context(), session, fallback.Stamp{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// I3, by an observer's clock: a process declares nothing that it has not seen stand still for
// long enough.
func TestObserver_CountsFromItsOwnLook(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l := newLedger()
		a := attachRecords(t, l, noClock)
		openSession(t, a, "alice")
		for range 100 {
			time.Sleep(ttl * time.Millisecond / 2)
			renewSession(t, a, "alice", 0)
		}
		b := attachRecords(t, l, noClock)
		want(t, "at the first look", deadSession(t, b, "alice"), fallback.Liveness{Left: ttl * time.Millisecond})
		time.Sleep(ttl*time.Millisecond - time.Millisecond)
		want(t, "at the last moment", deadSession(t, b, "alice"), fallback.Liveness{Left: time.Millisecond})
		if !renewSession(t, a, "alice", 0).Alive {
			t.Error("a session is dead that no process declared dead")
		}
		time.Sleep(time.Millisecond)
		if deadSession(t, b, "alice").Dead {
			t.Error("a session that was renewed is dead")
		}
		time.Sleep(ttl * time.Millisecond)
		want(t, "after it", deadSession(t, b, "alice"), isDead)
		if renewSession(t, a, "alice", 0).Alive {
			t.Error("a session is alive that was declared dead")
		}
	})
}

// A renewal of the process shows it all others, so its count has begun when it asks.
func TestObserver_RenewalsSeeTheOthers(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l := newLedger()
		a, b := attachRecords(t, l, noClock), attachRecords(t, l, noClock)
		openSession(t, a, "alice")
		seen := openSession(t, b, "bob").Expiry
		for range 4 {
			time.Sleep(ttl * time.Millisecond / 4)
			seen = renewSession(t, b, "bob", seen).Expiry
		}
		want(t, "alice", deadSession(t, b, "alice"), isDead)
	})
}

// Clocks of processes and of the store may differ, and step.
func TestObserver_NoClockIsCompared(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l := newLedger()
		a, b := attachRecords(t, l, noClock), attachRecords(t, l, noClock)
		openSession(t, a, "alice")
		deadSession(t, b, "alice")
		for _, step := range []time.Duration{time.Hour, -2 * time.Hour} {
			l.ahead = step
			if deadSession(t, b, "alice").Dead || !renewSession(t, a, "alice", 0).Alive {
				t.Errorf("a step of the store's clock by %v ends a session", step)
			}
		}
	})
}

func TestObserver_NoSessionIsDeadAndAlive(t *testing.T) {
	for _, order := range orders(4) {
		virtual.Test(t, func(t *testing.T) {
			r := newRace()
			a, b := attachRecords(t, r.ledger, noClock), attachRecords(t, r.ledger, noClock)
			openSession(t, a, "alice")
			deadSession(t, b, "alice")
			time.Sleep(ttl*time.Millisecond - time.Second)
			var renewal fallback.Renewal
			var liveness fallback.Liveness
			var errs [2]error
			r.run(t.Context(), order, func(ctx context.Context) {
				renewal, errs[0] = a.Renew(ctx, "alice", fallback.Registration{TTL: time.Hour})
			}, func(ctx context.Context) {
				liveness, errs[1] = b.Dead(ctx, "alice", fallback.Stamp{})
			}, func() { time.Sleep(time.Second) })
			if err := errors.Join(errs[:]...); err != nil {
				t.Fatal(err)
			}
			if renewal.Alive && liveness.Dead {
				t.Errorf("order %s: alive by Renew, dead by Dead", order)
			}
		})
	}
}

// One renewal that the store has lost is enough to notice that it has older data.
func TestObserver_OlderDataAreNoticedByTheBeat(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l := newLedger()
		n := attachRecords(t, l, noClock)
		seen := openSession(t, n, "alice").Expiry
		old := l.snapshot()
		time.Sleep(time.Millisecond)
		seen = renewSession(t, n, "alice", seen).Expiry
		time.Sleep(time.Millisecond)
		l.rewind(old)
		if r := renewSession(t, n, "alice", seen); !r.Alive || r.Grace == 0 {
			t.Errorf("Renew after the store went back by one renewal: %+v", r)
		}
	})
}

// Each process counts Grace from its own look: a clock that is ahead does not end it.
func TestObserver_GraceIsCountedByEach(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l := newLedger()
		a := attachRecords(t, l, noClock)
		l.restore(l.snapshot())
		want(t, "Grace at the first look", left(t, a), [2]time.Duration{quiet, quiet})
		time.Sleep(quiet / 2)
		b := attachRecords(t, l, noClock)
		want(t, "Grace for a process that comes later", left(t, b), [2]time.Duration{quiet, quiet})
		want(t, "Grace for the first", left(t, a), [2]time.Duration{quiet / 2, quiet / 2})
		time.Sleep(quiet / 2)
		want(t, "Grace at its end", left(t, a), [2]time.Duration{})
		want(t, "Grace for the other one, too", left(t, b), [2]time.Duration{})
	})
}

// A failover begins another Grace, also if the data are in one, and if the process that notices
// sees that one for the first time.
func TestObserver_AFailoverInGraceBeginsAnother(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l := newLedger()
		a := attachRecords(t, l, noClock)
		l.restore(l.snapshot())
		left(t, a)
		copied := l.snapshot()
		time.Sleep(quiet)
		l.restore(copied)
		b := attachRecords(t, l, noClock)
		want(t, "Grace for a process that comes later", left(t, b), [2]time.Duration{quiet, quiet})
		want(t, "Grace for one that has counted the Grace before", left(t, a), [2]time.Duration{quiet, quiet})
	})
}

// A session that has ended is dead in the end, also for processes that have seen renewals that the
// store has lost.
func TestObserver_ASessionOfOlderDataDies(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l := newLedger()
		a, b := attachRecords(t, l, noClock), attachRecords(t, l, noClock)
		opened := openSession(t, b, "bob")
		copied := l.snapshot()
		time.Sleep(time.Second)
		renewSession(t, b, "bob", opened.Expiry)
		deadSession(t, a, "bob") // sees the renewal
		l.restore(copied)
		deadSession(t, a, "bob")
		time.Sleep(2 * quiet)
		for _, n := range []fallback.Namespace{a, b} {
			if l := deadSession(t, n, "bob"); !l.Dead {
				t.Errorf("long after: %+v, want dead", l)
			}
		}
	})
}

// Nothing is written for partitions that nothing was done with.
func TestDurable_FormatsWhatIsUsed(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l := newLedger()
		l.kept = 0
		n := attachRecords(t, l, &fallback.RecordsOptions{Durable: true, ColdStart: true})
		want(t, "durability", fallback.DurabilityOf(n), fallback.Durable)
		want(t, "Grace", left(t, n), [2]time.Duration{})
		states := n.Verify(t.Context(), []fallback.Read{{Partition: 0}, {Partition: 1}})
		want(t, "writes", l.writes, 1)
		time.Sleep(time.Minute)
		a, err := n.Acquire(t.Context(), 0, "alice", fallback.Expect{Epoch: states[0].Record.Epoch})
		if err != nil || a.Verdict != fallback.Granted {
			t.Errorf("Acquire: %+v, %v", a, err)
		}
		if token := lock(t, n, 1, "k", id("alice", 1)).Token; token.Epoch() < uint32(fallback.EpochAt(time.Now()))-60 {
			t.Errorf("the first token is %v", token)
		}
		want(t, "writes", l.writes, 5) // one of each, and two of the table, which tells of them
		other := attachRecords(t, l, &fallback.RecordsOptions{Durable: true})
		want(t, "what another process sees", fmt.Sprint(other.Verify(t.Context(), []fallback.Read{{Partition: 1, Keys: []string{"k"}}})[0].Rows[0].Identity), fmt.Sprint(id("alice", 1)))
	})
}

// A durable store loses only keys that an operator deletes. Processes at work notice.
func TestDurable_AStoreThatWasEmptiedIsInGrace(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l := newLedger()
		opts := &fallback.RecordsOptions{Durable: true}
		n := attachRecords(t, l, opts)
		l.rewind(map[string]fallback.Versioned{})
		want(t, "Grace where the process is the first", left(t, n), [2]time.Duration{quiet, quiet})
		time.Sleep(2 * quiet)
		l.rewind(map[string]fallback.Versioned{})
		other := attachRecords(t, l, opts)
		want(t, "Grace where another process has made it anew", left(t, n), [2]time.Duration{quiet, quiet})
		want(t, "Grace for that process", left(t, other), [2]time.Duration{quiet, quiet})
		want(t, "writes", l.writes, 3)
		time.Sleep(quiet)
		want(t, "Grace at its end", left(t, n), [2]time.Duration{})
		a, b := loaded(t, n, 0).Epoch, loaded(t, other, 0).Epoch
		if now := uint32(fallback.EpochAt(time.Now())); a != b || a < now || a > now+1 {
			t.Errorf("epochs after Grace: %d and %d, want %d", a, b, now)
		}
	})
}

// A process that says that the store is new is believed. Those at work begin Grace.
func TestDurable_AStoreThatIsSaidToBeNew(t *testing.T) {
	virtual.Test(t, func(t *testing.T) {
		l := newLedger()
		opts := &fallback.RecordsOptions{Durable: true, ColdStart: true}
		n := attachRecords(t, l, opts)
		r, err := n.Open(t.Context(), "alice", fallback.Registration{TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		l.rewind(map[string]fallback.Versioned{})
		other := attachRecords(t, l, opts)
		want(t, "Grace for the process that says so", left(t, other), [2]time.Duration{})
		if r, err = n.Renew(t.Context(), "alice", fallback.Registration{TTL: time.Hour, Seen: r.Expiry}); err != nil || !r.Alive {
			t.Errorf("Renew: %+v, %v", r, err)
		}
		want(t, "Grace for the one at work", left(t, n), [2]time.Duration{quiet, quiet})
		want(t, "Grace for the other one, too", left(t, other), [2]time.Duration{quiet, quiet})
		time.Sleep(quiet)
		want(t, "Grace at its end", left(t, n), [2]time.Duration{})
		want(t, "writes", l.writes, 5) // no partition: two marks, a session, its renewal, the end of Grace
	})
}

func loaded(t *testing.T, n fallback.Namespace, p uint32) fallback.Record {
	t.Helper()
	r, err := n.Load(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
