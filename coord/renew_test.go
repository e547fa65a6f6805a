package coord_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// renewals is an arbiter that notes when sessions are renewed.
type renewals struct {
	*fallback.Memory

	mu   sync.Mutex // protects the fields below
	all  []renewed
	hang time.Duration                   // further ones end after so long without an answer, or with their ctx
	tell func(ctx context.Context) error // gives all sessions the hint of a round
}

type renewed struct {
	session string
	at      time.Time
}

type renewalsSpace struct {
	fallback.Namespace
	fallback.Rounder
	a *renewals
}

func (a *renewals) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := a.Memory.Attach(ctx, s)
	if err != nil {
		return nil, err
	}
	by := n.(fallback.Rounder)
	a.tell = by.TellRound
	return renewalsSpace{n, by, a}, nil
}

func (n renewalsSpace) Renew(ctx context.Context, id string, r fallback.Registration) (fallback.Renewal, error) {
	n.a.mu.Lock()
	n.a.all = append(n.a.all, renewed{id, time.Now()})
	hang := n.a.hang
	n.a.mu.Unlock()
	if hang > 0 {
		select {
		case <-time.After(hang):
			return fallback.Renewal{}, errCut
		case <-ctx.Done():
			return fallback.Renewal{}, ctx.Err()
		}
	}
	return n.Namespace.Renew(ctx, id, r)
}

// hangs sets for how long further renewals hang.
func (a *renewals) hangs(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hang = d
}

// since returns the renewals that came after a time, and forgets all.
func (a *renewals) since(then time.Time) (all []renewed) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.all {
		if r.at.After(then) {
			all = append(all, r)
		}
	}
	a.all = nil
	return all
}

// rounded starts a coordinator whose session has a part in rounds, with a renewal in each second. It
// returns when a renewal has been answered.
func rounded(t *testing.T, m *fallback.Memory, o *coord.Options) (*renewals, *coord.Coordinator) {
	m.OpenOnReplicas()
	a := &renewals{Memory: m}
	o.Margin, o.Grace, o.RenewEvery, o.RetryEvery, o.CallTimeout = 2*time.Second, 30*time.Second, 2500*time.Millisecond, 500*time.Millisecond, time.Second
	c := start(t, a, o)
	time.Sleep(10 * time.Second)
	for began := time.Now(); len(a.since(began)) == 0; synctest.Wait() {
		time.Sleep(time.Millisecond)
	}
	return a, c
}

// The goroutine of a renewal is ended by the caller's function: further renewals wait for none.
func TestRenew_AGoroutineThatEndsHoldsUpNone(t *testing.T) {
	bubble(t, func(t *testing.T, m *fallback.Memory) {
		var x exit
		a, _ := rounded(t, m, &coord.Options{SessionTTL: 20 * time.Second, Trace: &coord.Trace{Call: func(i coord.CallInfo) {
			if i.Op == coord.OpRenew {
				x.call()
			}
		}}})
		x.Store(true)
		time.Sleep(6 * time.Second)
		if x.Load() {
			t.Fatal("no renewal was ended")
		}
		asked := time.Now()
		a.since(asked)
		if err := a.tell(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if n := len(a.since(asked.Add(-1))); n != 1 {
			t.Errorf("%d renewals within 1 ms", n)
		}
	})
}

// A renewal for a round hangs: the session's own one, due meanwhile, has half of its time
// (E8).
func TestRenew_AHungOneLeavesTheNextItsTime(t *testing.T) {
	bubble(t, func(t *testing.T, m *fallback.Memory) {
		a, _ := rounded(t, m, &coord.Options{SessionTTL: 20 * time.Second})
		last := time.Now()
		time.Sleep(900 * time.Millisecond)
		a.hangs(900 * time.Millisecond)
		if err := a.tell(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(600*time.Millisecond + time.Millisecond)
		if all := a.since(last); len(all) != 2 {
			t.Errorf("renewals %v after %v, want one for the round, and that of the session", all, last)
		}
	})
}

// An arbiter that refuses renewals until shortly before the lease ends costs no session: they are
// made again soon, by the default options too, as an outage may begin when one was due.
func TestRenew_IsMadeAgainSoon(t *testing.T) {
	bubble(t, func(t *testing.T, m *fallback.Memory) {
		a, c := rounded(t, m, &coord.Options{SessionTTL: 20 * time.Second})
		last, session := time.Now(), c.Stats().Session
		a.hangs(time.Millisecond)
		time.Sleep(18*time.Second - 130*time.Millisecond)
		a.hangs(0)
		time.Sleep(time.Second)
		if s := c.Stats(); s.Session != session || s.Sessions != 1 {
			t.Errorf("session %s, of %d, want %s still; renewals: %v", s.Session, s.Sessions, session, a.since(last))
		}
	})
}

// A renewal that waits for another one when the session ends is not sent then.
func TestRenew_NoneIsSentAfterTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, m *fallback.Memory) {
		const ttl = 19225 * time.Millisecond // calls that begin 2.5 s after the last answer, and every 1.125 s, begin 0.1 s before the end
		a, c := rounded(t, m, &coord.Options{SessionTTL: ttl})
		last, session := time.Now(), c.Stats().Session
		a.hangs(time.Minute)
		time.Sleep(ttl)
		all := a.since(last)
		if len(all) < 10 {
			t.Fatalf("%d renewals were sent", len(all))
		}
		for _, r := range all {
			if after := r.at.Sub(last); r.session == session && after >= ttl-2*time.Second {
				t.Errorf("a renewal was sent %v after the last one that was answered", after)
			}
		}
	})
}
