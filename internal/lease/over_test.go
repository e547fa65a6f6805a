package lease

import (
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
)

// A wall clock that steps forward ends the times of this node alone, and not those announced to
// other nodes: their clocks have not stepped.
func TestOver_AStepOfTheWallClockEndsNoAnnouncement(t *testing.T) {
	now := time.Now()
	ends, stepped := now.Add(time.Minute), stepped(t, now, 3600)
	p := &Partition{}
	p.bounds.announcedEnds, p.bounds.reliedUntil = ends, ends
	for _, c := range []struct {
		when       string
		now        time.Time
		past, over bool
	}{
		{"before", now, false, false},
		{"stepped", stepped, true, false},
		{"stepped, and later", stepped.Add(time.Minute), true, true},
		{"later", now.Add(time.Minute), true, true},
	} {
		_, owed := p.Left(c.now)
		if Past(ends, c.now) != c.past || p.MayForswear(false, c.now) != c.over || (owed != "") != !c.over {
			t.Errorf("%s: past %t, may be demoted unserved %t, owed %q", c.when, Past(ends, c.now), p.MayForswear(false, c.now), owed)
		}
	}
}

// A Pong is sent without the partition's mutex: it may tell of a renewal that is later than the
// freeze, and come before holders are told of that. So they may rely on the session's deadline as
// of the end of Demote.
func TestOver_ARenewalBesideTheFreezeIsAnnounced(t *testing.T) {
	now := time.Now()
	s := NewSession("me", now.Add(3*time.Second))
	p := &Partition{}
	p.Init(&Config{Began: now, Lease: 9 * time.Second, Margin: time.Second}, 0)
	p.own, p.phase = &ownership{session: s, epoch: 1, confirmed: now}, Owned
	var fx Effects
	x, ok := p.BeginDemote(0, now, &fx)
	s.Extend(now.Add(5 * time.Second))
	p.EndDemote(x, false, false, now, now, &fx)
	for at, may := range map[time.Duration]bool{4500 * time.Millisecond: false, 6500 * time.Millisecond: true} {
		if got := p.MayForswear(false, now.Add(at)); got != may || !ok {
			t.Errorf("after %v the record may be demoted: %t", at, got)
		}
	}
}

// After a step of the wall clock FreezeStepped gives the partition back with its rows: an answer of
// the arbiter that comes before does not let it go without.
func TestOver_AnAnswerAfterAStepLetsNoPartitionGo(t *testing.T) {
	for _, c := range []struct {
		answer string
		heard  func(*Partition, Snapshot, time.Time, *Effects)
	}{
		{"Verify", func(p *Partition, x Snapshot, now time.Time, fx *Effects) {
			r := fallback.Record{Owner: x.Own.Session.ID, Epoch: x.Own.Epoch, Revoked: true}
			if _, revoked := p.Compare(x, fallback.State{Record: r}, now, now, fx); revoked != 0 {
				t.Error("it gives the partition up in another way")
			}
		}},
		{"ReclaimOwners", func(p *Partition, x Snapshot, now time.Time, fx *Effects) { p.Reclaimed(x.Own, true, now, now, fx) }},
	} {
		now := time.Now()
		p, s := partition(), NewSession("me", now.Add(9*time.Second))
		p.own, p.phase = newOwnership(s, 100, now), Owned
		x := p.Snapshot(s, Look{}, now)
		var fx Effects
		after := stepped(t, now, 10)
		c.heard(p, x, after, &fx)
		if !p.Confirmed().Equal(now) || fx.Adopt {
			t.Errorf("%s: confirmed at %v, of %v, let go %t", c.answer, p.Confirmed(), now, fx.Adopt)
		}
		if _, ok := p.FreezeStepped(s, after, &fx); !ok {
			t.Errorf("%s: there is nothing to be given back", c.answer)
		}
	}
}

// stepped returns a time as it is read when the wall clock has stepped by so many seconds.
func stepped(t *testing.T, now time.Time, seconds int) time.Time {
	t.Helper()
	x := now
	*(*uint64)(unsafe.Pointer(&x)) += uint64(seconds) << 30 // its whole seconds by the wall clock
	if x.Sub(now) != 0 || x.Unix()-now.Unix() != int64(seconds) {
		t.Fatalf("the wall clock's part of a time is not where it was: %v", x)
	}
	return x
}

// An ownership has lapsed by the wall clock once that has passed the earlier one of its two
// deadlines. After a step back between a renewal and a confirmation that is not the earlier one by
// the monotonic clock. Holds and turns under it have lapsed as well.
func TestOver_AStepBackBetweenTwoDeadlines(t *testing.T) {
	began := time.Now()
	p := new(Partition)
	p.Init(&Config{Began: began, Lease: time.Minute, RenewEvery: time.Second, Handoff: handoff.Limits{Linger: time.Second}, Requests: new(atomic.Uint64)}, 7)
	p.own, p.phase = newOwnership(NewSession("s", began.Add(time.Minute)), 1, stepped(t, began.Add(time.Second), -30)), Owned
	var fx Effects
	used, kept := p.Key("used"), p.Key("kept")
	turn, fence := p.BeginOwn(used, began, 0)
	if turn, fence := p.BeginOwn(kept, began, 0); turn == nil {
		t.Fatal("nothing is granted")
	} else if _, state := p.Unlock(turn, fence, began, &fx); state != TurnRuns || !p.Lingers(kept) {
		t.Fatal("the key is not kept")
	}
	for seconds, lapsed := range map[int]bool{0: false, 30: true} { // by the wall clock the deadline is 31 s after began
		now := stepped(t, began.Add(2*time.Second), seconds)
		if good, d := p.Good(now), p.deadlines(used.hold).Past(now); good == lapsed || d != lapsed {
			t.Errorf("%d s: good %t, the hold has lapsed %t", seconds, good, d)
		}
	}
	used.Join(&Waiter{Value: &Seat{Ready: make(chan struct{}, 1)}})
	p.granted[PathOwn] = 10 // not one that is measured
	if p.Pass(turn, fence) != nil {
		t.Error("the next turn is passed on without the clock")
	}
	now := stepped(t, began.Add(2*time.Second), 30)
	if turn, _, _ := p.Reenter(kept, now); turn != nil {
		t.Error("a key that is kept is granted")
	}
	if p.InForce(used, now, &fx) {
		t.Error("the hold is in force")
	}
}
