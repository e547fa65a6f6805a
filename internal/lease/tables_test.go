package lease

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

func TestAdoption_WhenAHoldIsAdopted(t *testing.T) {
	x := Adoption{Lead: time.Second, Last: 3 * time.Second, Back: 2 * time.Second}
	for _, c := range []struct {
		silent, gone bool
		left         time.Duration
		due, rests   bool
	}{
		{false, false, 2 * time.Second, false, false},
		{false, false, 4 * time.Second, false, true},
		{false, false, 999 * time.Millisecond, true, false},
		{false, true, 4 * time.Second, true, false},
		{true, true, 4 * time.Second, false, false},
		{true, false, 2 * time.Second, true, false},
	} {
		x.Silent = c.silent
		if x.Due(c.gone, c.left) != c.due || x.Trusts(c.gone, c.left) != c.rests {
			t.Errorf("%+v: due %t, rests %t", c, x.Due(c.gone, c.left), x.Trusts(c.gone, c.left))
		}
	}
	if x.Silent = false; x.At() != x.Lead {
		t.Error(x.At())
	}
	if x.Silent = true; x.At() != x.Last {
		t.Error("while the arbiter does not answer:", x.At())
	}
}

// alone is a View without other nodes.
type alone struct{ session *Session }

func (a alone) Session() *Session  { return a.session }
func (alone) Route(uint32) Route   { return Route{Mine: true} }
func (alone) LinkTo(string) Link   { return nil }
func (alone) LinkNode(string) Link { return nil }
func (alone) Adoption() Adoption   { return Adoption{} }

var start = time.Date(2000, 1, 1, 0, 1, 40, 0, time.UTC)

func partition() *Partition {
	p := new(Partition)
	p.Init(&Config{
		Began: start, Lease: 9 * time.Second, Margin: time.Second, SessionTTL: 10 * time.Second, RenewEvery: 2500 * time.Millisecond,
		RetryEvery: 500 * time.Millisecond, Clustered: true, View: alone{NewSession("me", start.Add(9*time.Second))},
	}, 0)
	return p
}

// serving returns a partition that this node serves at epoch 100.
func serving(t *testing.T) *Partition {
	t.Helper()
	p := partition()
	var fx Effects
	if !p.BeginAcquire(fallback.Expect{}) || !p.Serve(p.cfg.View.Session(), fallback.Acquisition{Record: fallback.Record{Epoch: 100}}, start, start, &fx) {
		t.Fatal("it does not serve")
	}
	p.EndAcquire(start, &fx)
	return p
}

func TestUnreachable_ForLong(t *testing.T) {
	p := partition()
	for _, c := range []struct {
		after time.Duration
		long  bool
	}{{0, false}, {2500 * time.Millisecond, false}, {2501 * time.Millisecond, true}} {
		if got := p.Unreachable(start.Add(c.after)); got != c.long {
			t.Errorf("after %v: %t", c.after, got)
		}
	}
	if p.Reachable(); p.Unreachable(start.Add(time.Minute)) {
		t.Error("it counts from when it was reached")
	}
}

func TestDuty_OfANodeThatDoesNotServe(t *testing.T) {
	mine, other := Placement{Known: true, Mine: true}, Placement{Known: true, Agreed: true}
	now := start
	p := partition()
	if d := p.Duty(mine, now); d != DutyTake {
		t.Error(d)
	}
	p.record.naming = NamedSurely
	if d := p.Duty(other, now); d != DutyLook || p.BeginAcquire(fallback.Expect{}) {
		t.Error("a record that may name this node:", d)
	}
	p.EndLook()
	if d := p.Duty(other, now); d != DutyWait {
		t.Error("soon after the last look:", d)
	}
	if p.NotNamed(); p.Duty(other, now) != DutyNone {
		t.Error("a record that names another node")
	}
	if !p.BeginFreeing() || p.BeginFreeing() || p.Duty(mine, now) != DutyWait {
		t.Error("while it frees the partition")
	}
	p.EndFreeing()
	p.Close(nil, now, &Effects{})
	p.Leave()
	if p.BeginAcquire(fallback.Expect{}) || p.take(now) {
		t.Error("a node that leaves acquires")
	}
}

func TestDuty_TheTokensOfAnEpochRunOut(t *testing.T) {
	p, x := serving(t), Placement{Known: true, Mine: true}
	if d := p.Duty(x, start); d != DutyNone {
		t.Error(d)
	}
	p.own.seq = lastSeq
	if d := p.Duty(x, start); d != DutyGive {
		t.Error("they begin to run out:", d)
	}
	p.own.seq = noSeq
	if turn, _ := p.BeginOwn(p.Key("k"), start, 0); turn != nil || p.Good(start) {
		t.Error("it grants when they have run out")
	}
}

// A key that lingers gets no token past the last one.
func TestEnter_TheTokensOfAnEpochRunOut(t *testing.T) {
	p := serving(t)
	k := p.Key("k")
	turn, fence := p.BeginOwn(k, start, 0)
	p.cfg.Handoff.Linger = time.Second
	var fx Effects
	if _, state := p.Unlock(turn, fence, start, &fx); state != TurnRuns || !p.Lingers(k) {
		t.Fatal("it does not linger:", state)
	}
	p.own.seq = noSeq
	if turn, fence, _ := p.Reenter(k, start); turn != nil {
		t.Error("granted with token", fence)
	}
	k = p.Live(k, "k", start, &fx)
	if turn, _ := p.BeginOwn(k, start, 0); turn != nil || !k.Idle() || p.basis.holds != 0 {
		t.Errorf("granted %v, idle %t, %d holds", turn != nil, k.Idle(), p.basis.holds)
	}
}

// A record that this node was told of needs no look if it cannot be of older data than it has seen,
// as [fallback.Partition.Witness] would find.
func TestExpected(t *testing.T) {
	for _, c := range []struct {
		seen fallback.Token
		told fallback.Expect
		want bool
	}{
		{fallback.MakeToken(100, 0), fallback.Expect{}, false},
		{0, fallback.Expect{Epoch: 1}, true},
		{fallback.MakeToken(100, 0), fallback.Expect{Epoch: 99}, false},
		{fallback.MakeToken(100, 0), fallback.Expect{Epoch: 100}, true},
		{fallback.MakeToken(100, 1), fallback.Expect{Epoch: 100}, false},
		{fallback.MakeToken(100, 1), fallback.Expect{Epoch: 101}, true},
		{fallback.MakeToken(100, 1), fallback.Expect{Epoch: 100, Owner: "other", OwnerDead: true}, true}, // its tokens are not in the record
		{fallback.MakeToken(100, 0), fallback.Expect{Epoch: 99, Owner: "other", OwnerDead: true}, false},
	} {
		p := partition()
		p.tokens.seen = c.seen
		if !p.BeginAcquire(c.told) {
			t.Fatal("it is not idle")
		}
		if x, ok := p.Expected(); ok != c.want || ok && x != c.told {
			t.Errorf("seen %v, told %v: expects %v, %v", c.seen, c.told, x, ok)
		}
		if _, again := p.Expected(); again {
			t.Error("twice")
		}
		if c.told.Epoch == 0 {
			continue
		}
		record := fallback.Partition{Server: "s", Epoch: c.told.Epoch, Owner: c.told.Owner}
		if r := record.Witness(fallback.Moment{Server: "s", Now: 1, Grace: 1000}, c.seen); c.want != (r.Grace == 0) {
			t.Errorf("seen %v, told %v: a look finds Grace %v", c.seen, c.told, r.Grace)
		}
	}
}

func TestForswear_NotWhatIsServed(t *testing.T) {
	p := serving(t)
	if p.Forswear(100) || p.MayForswear(false, start) {
		t.Error("an epoch that is served")
	}
	if !p.Forswear(101) {
		t.Error("a later one")
	}
	p = partition()
	var fx Effects
	if !p.Forswear(100) || !p.BeginAcquire(fallback.Expect{}) || p.Serve(p.cfg.View.Session(), fallback.Acquisition{Record: fallback.Record{Epoch: 100}}, start, start, &fx) {
		t.Error("an epoch that is about to be demoted is served")
	}
}

func TestReclaimed_AnswersToAnOwner(t *testing.T) {
	p := serving(t)
	own := Tenure{p.cfg.View.Session(), 100}
	var fx Effects
	later := start.Add(time.Second)
	p.Reclaimed(Tenure{own.Session, 99}, false, later, later, &fx)
	p.Reclaimed(own, true, later, later, &fx)
	if p.Phase() != Owned || !p.Confirmed().Equal(later) {
		t.Error(p.Phase(), p.Confirmed())
	}
	if p.Reclaimed(own, false, later, later, &fx); p.Phase() != Unowned || !fx.Adopt {
		t.Error("refused:", p.Phase())
	}
}

func TestCompare_AnOwnerIsRevoked(t *testing.T) {
	p := serving(t)
	x := p.Snapshot(p.cfg.View.Session(), Look{}, start)
	var fx Effects
	s := fallback.State{Record: fallback.Record{Owner: "me", Epoch: 100, Revoked: true}}
	if _, revoked := p.Compare(x, s, start, start, &fx); revoked != 100 || !p.MayGiveUp(revoked) || p.MayGiveUp(99) {
		t.Error(revoked)
	}
	if s.Record.Epoch = 99; !p.Older(x, s) {
		t.Error("a record of an earlier epoch is believed")
	}
	if s.Record.Grace = time.Second; p.Older(x, s) {
		t.Error("in Grace nothing need be witnessed")
	}
}

func TestReconfirm_MovesTheDeadline(t *testing.T) {
	p := serving(t)
	p.Reconfirm(p.cfg.View.Session(), func(at time.Time) time.Time { return at.Add(-9 * time.Second) })
	if p.Good(start) {
		t.Error("it grants")
	}
}

// silent is a stream that has ended, as nothing came since.
type silent struct {
	Link
	heard time.Time
}

func (l silent) Heard() time.Time { return l.heard }

// TestAloneSince: a partition is given back R after a holder counts as out of reach (rule 4). Where
// the death of nodes is known soon, that is Death after the last ping, whenever the stream ended,
// and RetryEvery after its end.
func TestAloneSince(t *testing.T) {
	const ms = time.Millisecond
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		death, renew, silence, want time.Duration // want: before now
	}{
		{0, 2500 * ms, 2600 * ms, 0},
		{3500 * ms, 2500 * ms, 2600 * ms, 1600 * ms},
		{3500 * ms, 2500 * ms, 3400 * ms, 2000 * ms},
		{3500 * ms, 2500 * ms, 0, -time.Second},
		{3500 * ms, 5000 * ms, 2600 * ms, 4100 * ms},
	} {
		p := &Partition{cfg: &Config{RenewEvery: c.renew, RetryEvery: 500 * ms, Death: c.death}}
		if got := now.Sub(p.aloneSince(silent{heard: now.Add(-c.silence)}, now)); got != c.want {
			t.Errorf("%+v: out of reach since %v", c, got)
		}
		if got := p.aloneSince(silent{}, now); !got.Equal(now) {
			t.Errorf("%+v: never heard, and out of reach since %v, want %v", c, got, now)
		}
	}
}
