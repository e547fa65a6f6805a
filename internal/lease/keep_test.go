package lease

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
)

// kept returns a partition with a key whose hold came from the arbiter and lingers, after a lock
// and an unlock at a moment.
func kept(t *testing.T, began time.Time, lease time.Duration) (*Partition, *Key) {
	t.Helper()
	p := new(Partition)
	p.Init(&Config{Began: began, Lease: lease, Handoff: handoff.Limits{Linger: 5 * time.Millisecond}, Requests: new(atomic.Uint64)}, 7)
	k := p.Key("k")
	k.hold = p.newHold(hold{session: NewSession("s", began.Add(time.Minute)), confirmed: began, row: fallback.Row{Token: 1}})
	p.basis.holds++
	k.q.Join(new(Waiter))
	if k.q.Take(1, Block, false, 0) == nil {
		t.Fatal("no turn begins")
	}
	var fx Effects
	p.Unlock(p.begin(k, 1, PathArbiter, 0), 1, began, &fx)
	p.Find("k")
	if !k.listed || !p.Lingers(k) {
		t.Fatalf("the key is in state %v, listed %v", k.q.State(), k.listed)
	}
	return p, k
}

// lockAndKeep takes the key's next turn at a moment, and reports whether Keep ends it.
func lockAndKeep(t *testing.T, p *Partition, k *Key, at Moment) bool {
	t.Helper()
	turn, fence, _ := p.Reenter(k, p.cfg.Began.Add(at))
	if turn == nil {
		t.Fatal("the hold is not in force")
	}
	return p.Keep(turn, fence)
}

// The monotonic clock decides for no longer than the wall clock need not be read, nor than the
// deadline; and not before both have.
func TestSoon_Lasts(t *testing.T) {
	for _, c := range []struct{ lease, until time.Duration }{{time.Minute, time.Microsecond + WallEvery}, {WallEvery / 2, WallEvery / 2}} {
		p, k := kept(t, time.Now(), c.lease)
		if p.Soon(k, 0) {
			t.Error("before both clocks were read")
		}
		lockAndKeep(t, p, k, time.Microsecond)
		if !p.Soon(k, c.until-1) || p.Soon(k, c.until) {
			t.Errorf("lease %v: until %v, want %v", c.lease, p.table.good, c.until)
		}
	}
}

// Both clocks decide again where the hold is another one, may lapse sooner than before, or is of
// another key.
func TestSoon_Retracted(t *testing.T) {
	now := time.Now()
	for what, f := range map[string]func(*Partition, *Key, *Effects){
		"lost": func(p *Partition, _ *Key, fx *Effects) { p.LoseAll(nil, LeaseExpired, now, fx) },
		"lost, and known yet": func(p *Partition, k *Key, fx *Effects) {
			k.others = new(grants)
			p.LoseAll(nil, LeaseExpired, now, fx)
		},
		"given back": func(p *Partition, k *Key, fx *Effects) { p.recallHere(k, now, fx) },
		"relaxed":    func(p *Partition, k *Key, fx *Effects) { k.undated = false; p.Relax(k, now.Add(time.Hour), fx) },
		"frozen":     func(p *Partition, k *Key, _ *Effects) { p.freezeHold(k, newOwnership(k.hold.session, 1, now), now) },
		"another": func(p *Partition, _ *Key, _ *Effects) {
			p.Key("other")
			p.Find("other")
			p.Find("k")
		},
	} {
		var fx Effects
		p, k := kept(t, now, time.Minute)
		lockAndKeep(t, p, k, 1)
		if f(p, k, &fx); p.Soon(k, 2) {
			t.Errorf("%s: the monotonic clock decides yet", what)
		}
	}
}

// An unlock that reads no clock is for the usual case only.
func TestKeep(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*Partition, *Key)
		keeps  bool
	}{
		"usual":               {func(*Partition, *Key) {}, true},
		"context":             {func(_ *Partition, k *Key) { k.turn.end = func(error) {} }, false},
		"shared":              {func(_ *Partition, k *Key) { k.turn.pledge = new(Pledge) }, false},
		"recalled":            {func(_ *Partition, k *Key) { k.q.Recall(0) }, false},
		"a caller waits":      {func(_ *Partition, k *Key) { k.q.Join(new(Waiter)) }, false},
		"not listed":          {func(_ *Partition, k *Key) { k.listed = false }, false},
		"lost":                {func(_ *Partition, k *Key) { k.turn.lost = new(Loss) }, false},
		"another lock's":      {func(_ *Partition, k *Key) { k.turn.fence++ }, false},
		"closing":             {func(p *Partition, _ *Key) { p.closing.ending = Closed }, false},
		"to be measured":      {func(p *Partition, _ *Key) { p.granted[PathTurn] = 64 }, false},
		"its own":             {func(_ *Partition, k *Key) { k.hold.source = SourceOwn }, false},
		"beside other nodes'": {func(_ *Partition, k *Key) { k.others = new(grants) }, false},
		"unmeasured":          {func(_ *Partition, k *Key) { k.turn.began = Unmeasured }, false},
	} {
		p, k := kept(t, time.Now(), time.Minute)
		turn, fence, _ := p.Reenter(k, p.cfg.Began)
		c.change(p, k)
		if got := p.Keep(turn, fence); got != c.keeps {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// A block of tokens that is used up is given back by Unlock.
func TestKeep_UsedUp(t *testing.T) {
	p, k := kept(t, time.Now(), time.Minute)
	for range Block - 2 {
		p.granted[PathTurn] = 0 // the one in 64 that is measured is another matter
		if !lockAndKeep(t, p, k, 1) {
			t.Fatal("a turn is left")
		}
	}
	if lockAndKeep(t, p, k, 1) {
		t.Error("the key lingers without a turn that is left")
	}
}

// A key lingers for as long after an unlock that read no clock as after any other, and then one
// look longer.
func TestKeep_Lingers(t *testing.T) {
	p, k := kept(t, time.Now(), time.Minute)
	lockAndKeep(t, p, k, 1)
	var fx Effects
	if after := p.cfg.Began.Add(time.Second); p.Relax(k, after, &fx) || p.Relax(k, after.Add(p.cfg.Handoff.Linger-1), &fx) {
		t.Error("it is given back, and may have been unlocked just before")
	}
	if !p.Relax(k, p.cfg.Began.Add(time.Second+p.cfg.Handoff.Linger), &fx) || p.Lingers(k) {
		t.Error("it is not given back")
	}
}
