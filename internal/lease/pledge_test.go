package lease

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
)

// fakeSharer is a Sharer with some callers.
type fakeSharer struct {
	inside int
	shut   bool
}

func (x *fakeSharer) Empty() bool           { return x.inside == 0 }
func (x *fakeSharer) Stays(m Moment) Moment { return m }

func (x *fakeSharer) Shut() bool {
	first := !x.shut
	x.shut = true
	return first && x.Empty()
}

func (x *fakeSharer) Vacate() bool {
	if x.shut || !x.Empty() {
		return false
	}
	x.shut = true
	return true
}

// shared returns a partition that this node owns for a while, with a turn that callers share.
func shared(t *testing.T, began time.Time, lasts time.Duration, callers *fakeSharer) (*Partition, *Turn, uint64, *Pledge) {
	t.Helper()
	p := new(Partition)
	p.Init(&Config{Began: began, Lease: lasts, RenewEvery: time.Second, Handoff: handoff.Limits{Linger: time.Millisecond}, Requests: new(atomic.Uint64)}, 7)
	p.own = newOwnership(NewSession("s", began.Add(time.Minute)), 1, began)
	name := fallback.SharedName("k", "a process")
	k := p.Key(name)
	k.others = nil // of no group: nothing else is wanted here
	turn, fence := p.BeginOwn(k, began, 0)
	x := new(Pledge)
	p.Share(turn, fence, x, callers, began, &Effects{})
	p.Pledge(turn, began)
	return p, turn, fence, x
}

// A pledge lasts no longer than WallEvery, nor than the deadline.
func TestPledge_Lasts(t *testing.T) {
	began := time.Now()
	for _, c := range []struct{ lease, until time.Duration }{{time.Minute, WallEvery}, {WallEvery / 2, WallEvery / 2}} {
		_, _, _, x := shared(t, began, c.lease, &fakeSharer{inside: 1})
		if !x.Given() || !x.Holds(c.until-1) || x.Holds(c.until) {
			t.Errorf("lease %v: until %v", c.lease, x.until.Load())
		}
	}
}

// A pledge is extended by both clocks, until the partition has to be asked again, and no longer
// than the deadline.
func TestPledge_Extended(t *testing.T) {
	began := time.Now()
	for what, c := range map[string]struct {
		lease, at time.Duration
		steps     int    // of the wall clock, in seconds
		until     Moment // 0: it is not extended
	}{
		"soon":                {time.Minute, 2 * WallEvery, 0, 3 * WallEvery},
		"in its last part":    {time.Minute, pledgedFor - 1, 0, pledgedFor},
		"then":                {time.Minute, pledgedFor, 0, 0},
		"before the deadline": {3 * WallEvery, 5 * WallEvery / 2, 0, 3 * WallEvery},
		"at the deadline":     {3 * WallEvery, 3 * WallEvery, 0, 0},
		"stepped forward":     {time.Minute, 2 * WallEvery, 1, 0},
		"stepped back":        {time.Minute, 2 * WallEvery, -3600, 0},
	} {
		_, _, _, x := shared(t, began, c.lease, &fakeSharer{inside: 1})
		ok := x.Extend(c.at, stepped(t, began.Add(c.at), c.steps))
		if ok != (c.until != 0) || ok && (!x.Holds(c.until-1) || x.Holds(c.until)) {
			t.Errorf("%s: extended %t, until %v", what, ok, x.until.Load())
		}
		x.session.Extend(time.Time{})
		if x.Extend(WallEvery/2, began.Add(WallEvery/2)) {
			t.Errorf("%s: extended after the session's end", what)
		}
		x.session.Extend(began.Add(time.Minute))
		x.Retract()
		if x.Extend(WallEvery/2, began.Add(WallEvery/2)) || x.Given() {
			t.Errorf("%s: what was retracted is extended", what)
		}
	}
}

// An owner's deadline may be nearer by the wall clock than it looks: that clock was set back
// between two confirmations.
func TestPledge_AnOwnersWallClock(t *testing.T) {
	began := time.Now()
	p, turn, _, x := shared(t, began, time.Minute, &fakeSharer{inside: 1})
	p.own.goodUntil, p.own.goodWall = began.Add(time.Minute), began.Add(3*WallEvery).UnixNano()
	p.Pledge(turn, began)
	if !x.Extend(2*WallEvery, began.Add(2*WallEvery)) || x.Extend(3*WallEvery, began.Add(3*WallEvery)) {
		t.Error("extended past the deadline of the wall clock, or not up to that")
	}
}

// A pledge is retracted where the turn ends, or its hold may lapse sooner than before.
func TestPledge_Retracted(t *testing.T) {
	now := time.Now()
	for what, f := range map[string]func(*Partition, *Turn, uint64, *Effects){
		"unlocked": func(p *Partition, x *Turn, fence uint64, fx *Effects) { p.Unlock(x, fence, now, fx) },
		"lost":     func(p *Partition, _ *Turn, _ uint64, fx *Effects) { p.LoseAll(nil, LeaseExpired, now, fx) },
		"frozen":   func(p *Partition, x *Turn, _ uint64, _ *Effects) { p.freezeHold(x.key, p.own, now) },
	} {
		var fx Effects
		p, turn, fence, x := shared(t, now, time.Minute, &fakeSharer{inside: 1})
		turn.end = func(error) {}
		f(p, turn, fence, &fx)
		if x.Given() {
			t.Errorf("%s: the pledge is there yet", what)
		}
	}
}

// A turn that no caller uses makes way at once, and one that some use when they unlock.
func TestPledge_MakesWay(t *testing.T) {
	now := time.Now()
	for what, f := range map[string]func(*Partition, *Key, *Turn, uint64, *Effects){
		"recalled": func(p *Partition, k *Key, _ *Turn, _ uint64, fx *Effects) { p.recallHere(k, now, fx) },
		"retired":  func(p *Partition, _ *Key, turn *Turn, fence uint64, fx *Effects) { p.Retire(turn, fence, now, fx) },
		"given up": func(p *Partition, _ *Key, _ *Turn, _ uint64, fx *Effects) { p.GiveKept(now, fx) },
		"closed":   func(p *Partition, _ *Key, _ *Turn, _ uint64, fx *Effects) { p.Close(nil, now, fx) },
	} {
		for inside := range 2 {
			fx := Effects{End: func(error) {}}
			callers := &fakeSharer{inside: inside}
			p, turn, fence, _ := shared(t, now, time.Minute, callers)
			turn.end = func(error) { t.Error("there is no context to be ended") }
			k := turn.Key(fence)
			f(p, k, turn, fence, &fx)
			if ended := turn.Key(fence) == nil && p.Turns() == 0 && p.basis.holds == 0; ended != (inside == 0) {
				t.Errorf("%s with %d inside: ended %v, %d turns, %d holds", what, inside, ended, p.Turns(), p.basis.holds)
			}
			if wantsShut := inside == 0 || what == "recalled" || what == "closed"; callers.shut != wantsShut {
				t.Errorf("%s with %d inside: shut %v", what, inside, callers.shut)
			}
			fx.End(nil) // of another turn that the event has ended
		}
	}
}

// A key that is asked for before the turn is shared is shut at once, and given back if its callers
// have left by then.
func TestPledge_WantedBefore(t *testing.T) {
	now := time.Now()
	for inside := range 2 {
		p, turn, fence, x := shared(t, now, time.Minute, &fakeSharer{inside: 1})
		var fx Effects
		p.recallHere(turn.key, now, &fx)
		callers := &fakeSharer{inside: inside}
		p.Share(turn, fence, x, callers, now, &fx)
		if !callers.shut {
			t.Errorf("%d inside: it lets callers in before the one that waits", inside)
		}
		if ended := turn.Key(fence) == nil && p.Turns() == 0 && p.basis.holds == 0; ended != (inside == 0) {
			t.Errorf("%d inside: ended %v, %d turns, %d holds", inside, ended, p.Turns(), p.basis.holds)
		}
	}
}
