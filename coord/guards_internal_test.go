package coord

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/guardians"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// TestGuarded_AWakeDelaysNoPing: a session that is woken between two pings looks again when the
// next one is due, not a whole period later.
func TestGuarded_AWakeDelaysNoPing(t *testing.T) {
	g := &guarded{}
	g.times.Promise = looksPerPromise * time.Second
	now := time.Now()
	if !g.due(now) {
		t.Error("the first pings are not due")
	}
	for _, after := range []time.Duration{0, 400, 900} {
		at := now.Add(after * time.Millisecond)
		if g.due(at) {
			t.Errorf("the next pings are due after %v ms", int64(after))
		}
		if left, want := g.untilDue(at), (1000-after)*time.Millisecond; left != want {
			t.Errorf("after %v ms it looks again in %v, want %v", int64(after), left, want)
		}
	}
	if !g.due(now.Add(time.Second)) {
		t.Error("the next pings are not due after a period")
	}
}

// A machine that was suspended has lost time of the deadline that it announces: the wall clock has
// gone on.
func TestOffer_ByBothClocks(t *testing.T) {
	l := &link{x: &cluster{}}
	l.x.heard.announces.Store(int64(time.Hour))
	now := time.Now()
	l.beat.heard, l.beat.heardAt = 1, now
	for _, x := range []struct {
		deadline time.Time
		left     uint32
	}{
		{now.Add(9 * time.Second), 9000},
		{earlierByWall(now.Add(9*time.Second), 8), 1000},
		{earlierByWall(now.Add(9*time.Second), 10), 0},
		{earlierByWall(now.Add(9*time.Second), -8), 9000},
	} {
		if _, left, _ := l.Offer(x.deadline); left != x.left {
			t.Errorf("%d ms, want %d", left, x.left)
		}
	}
}

// Its answers to pings, which let all holds that it has granted go on, have lost time, too: that of
// its session, and of its partitions.
func TestAnswersFor_ByBothClocks(t *testing.T) {
	const lasts = 9 * time.Second
	c := &Coordinator{opts: Options{SessionTTL: lasts + time.Second, Margin: time.Second}}
	x := &cluster{c: c}
	x.heard.announces.Store(int64(time.Hour))
	c.sessions.init()
	now := time.Now()
	if left := x.answersFor(now); left != 0 {
		t.Errorf("%v without a session", left)
	}
	for _, v := range []struct {
		session, partitions int64 // by so many seconds the wall clock has stepped since they were confirmed
		left                time.Duration
	}{
		{0, 0, lasts}, {8, 0, time.Second}, {0, 8, time.Second}, {10, 0, -time.Second}, {0, 10, -time.Second}, {-8, -8, lasts},
	} {
		c.sessions.set(&session{Session: lease.NewSession("a", earlierByWall(now.Add(lasts), v.session))})
		c.remote.confirmations.oldest = earlierByWall(now, v.partitions)
		if left := x.answersFor(now); left != v.left {
			t.Errorf("%+v: %v", v, left)
		}
		c.remote.confirmations.oldest = time.Time{} // it owns none
		if left := x.answersFor(now); left != lease.Left(c.sessions.current().Deadline(), now) {
			t.Errorf("%+v, without partitions: %v", v, left)
		}
	}
	x.heard.announces.Store(int64(time.Second))
	if left := x.answersFor(now); left != time.Second {
		t.Errorf("%v, though it may announce a second", left)
	}
}

// A session that was alone has a deadline which no promise bounds. Its first guardians are asked
// for when their promises cover that. So they are if the wall clock has stepped there and back
// meanwhile: the ward's clock has gone along with that, but no deadline has (G7).
func TestGuarded_CoversItsDeadlineOverAStepOfTheWallClock(t *testing.T) {
	times := guardians.Times{Promise: 3 * time.Second, Margin: 300 * time.Millisecond}
	now := time.Now()
	g := &guarded{s: &session{Session: lease.NewSession("a", now.Add(9*time.Second))}, times: times, ward: guardians.NewWard(times)}
	g.wakes.renew = make(chan time.Time, 1)
	const stepped = 5 * time.Second
	at := guardians.Instant(0)
	g.ward.Relied(at + 9*time.Second)
	live := []string{"b"}
	asked := time.Duration(-1)
	for after := time.Duration(0); after < 12*time.Second && asked < 0; after += 500 * time.Millisecond {
		at = after
		if after >= time.Second {
			at += stepped
		}
		p := g.ward.Ping("b", at)
		g.ward.Promised("b", guardians.Pong{Seq: p.Seq}, at)
		g.change(live, now.Add(after), now.Add(after), at, true, new(outbox))
		if _, _, phase := g.ward.Sets(); phase == guardians.Asked {
			asked = after
		}
	}
	if least := 9*time.Second - times.Valid(); asked < least {
		t.Errorf("asked for after %v, before promises cover the deadline, which is not before %v", asked, least)
	}
}

// A process that stood still hears late of its guardians. It keeps those with a stream until the
// pings that it sends then should have been answered, and gives up the others at once.
func TestGuarded_KeepsItsGuardiansWhenItStoodStill(t *testing.T) {
	times := guardians.Times{Promise: 3 * time.Second, Margin: 300 * time.Millisecond}
	now := time.Now()
	for _, x := range []struct {
		name    string
		streams []string
		resumed time.Duration // so long ago
		want    []string
	}{
		{"just now", []string{"b", "c", "d"}, 0, []string{"b", "c", "d"}},
		{"before the next pings are due", []string{"b", "c", "d"}, 499 * time.Millisecond, []string{"b", "c", "d"}},
		{"when they are due", []string{"b", "c", "d"}, 500 * time.Millisecond, nil},
		{"just now, and the stream to one has ended", []string{"b", "d"}, 0, []string{"b", "d"}},
	} {
		c := &Coordinator{cluster: new(cluster)}
		for _, session := range x.streams {
			c.cluster.streams.links.Store(session, new(link))
		}
		g := &guarded{c: c, s: &session{Session: lease.NewSession("a", now)}, times: times, ward: guardians.NewWard(times)}
		g.wakes.renew = make(chan time.Time, 1)
		g.ward.Propose([]string{"b", "c", "d"})
		for _, member := range []string{"b", "c", "d"} {
			g.ward.Promised(member, guardians.Pong{Seq: g.ward.Ping(member, 0).Seq}, 0)
		}
		if !g.ward.Ask(0) {
			t.Fatal("the first set is not asked for")
		}
		g.ward.Recorded(1, false, 0)
		g.contact = contacts{resumed: now.Add(-x.resumed), silent: now.Add(-time.Second), renewed: now}
		g.change(nil, now.Add(-1200*time.Millisecond), now, 1200*time.Millisecond, true, new(outbox))
		recorded, next, phase := g.ward.Sets()
		got := next.Members
		if phase == guardians.Settled {
			got = recorded.Members
		}
		if slices.Sort(got); !slices.Equal(got, x.want) {
			t.Errorf("%s: guardians %v, want %v", x.name, got, x.want)
		}
	}
}

// A session that is alone has a deadline that is no further away than the session is old, or than a
// promise would be good for: so long its first guardians may have to wait (G7). Its lease bounds it.
func TestGuarded_TheDeadlineOfASessionThatIsAloneGrows(t *testing.T) {
	times := guardians.Times{Promise: 3 * time.Second, Margin: 300 * time.Millisecond}
	for _, x := range []struct{ age, left time.Duration }{
		{0, times.Valid()}, {time.Second, times.Valid()}, {5 * time.Second, 5 * time.Second}, {8 * time.Second, 8 * time.Second}, {20 * time.Second, 9 * time.Second},
	} {
		now := time.Now()
		c := &Coordinator{cluster: &cluster{}}
		g := &guarded{c: c, s: &session{Session: lease.NewSession("a", time.Time{})}, times: times, ward: guardians.NewWard(times)}
		g.clock = wardClock{at: x.age, read: now}
		g.end.leaseEnds = now.Add(9 * time.Second)
		g.publish(now)
		if left := g.s.Deadline().Sub(now); left != x.left {
			t.Errorf("%v old: it ends in %v, want %v", x.age, left, x.left)
		}
	}
}

// burierFunc is an arbiter that does nothing but bury.
type burierFunc func() (fallback.Burial, error)

func (f burierFunc) Bury(context.Context, string, uint32, []string) (fallback.Burial, error) {
	return f()
}

// A burial that meets a later set makes the session look again at once, as there may be votes for
// that set. One that is not answered, or meets no later set, does not: it would be asked for again
// as quickly as the arbiter refuses it.
func TestGuarded_ABurialOfAnEarlierSetLooksAgain(t *testing.T) {
	c := &Coordinator{opts: Options{CallTimeout: time.Second, Trace: new(Trace)}}
	c.life.ctx, c.cluster = t.Context(), &cluster{c: c, members: new(members)}
	times := guardians.Times{Promise: 3 * time.Second, Margin: 300 * time.Millisecond}
	for _, x := range []struct {
		recorded uint32
		err      error
		again    bool
	}{{3, nil, true}, {2, nil, false}, {0, errors.New("no answer"), false}} {
		g := &guarded{c: c, guard: guardians.NewGuardian("a", times), burying: map[string]bool{"b": true}}
		g.wakes.look = make(chan struct{}, 1)
		g.burier = burierFunc(func() (fallback.Burial, error) { return fallback.Burial{Version: x.recorded}, x.err })
		g.bury(guardians.Burial{Ward: "b", Version: 2, Voters: []string{"a"}})
		if again := len(g.wakes.look) > 0; again != x.again || g.burying["b"] {
			t.Errorf("%+v: looks again %t, a call is under way %t", x, again, g.burying["b"])
		}
	}
}
