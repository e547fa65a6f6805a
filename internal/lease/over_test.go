package lease

import (
	"testing"
	"time"
	"unsafe"
)

// A wall clock that steps forward ends what this node relies on, and not what other nodes were told that they may rely on: their clocks
// have not stepped.
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

// A Pong is sent without the partition's mutex: it may tell of a renewal that is later than the freeze, and come before holders are told of
// that. So what they may rely on is the session's deadline of when Demote has ended.
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
