package fallback_test

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// quiet is Q in these tests.
const quiet = 12 * time.Second

// sent is a message on its way.
type sent struct {
	to string
	fallback.Message
}

// lab is a partition with the world around it: the test moves the clock and changes the server.
type lab struct {
	t   *testing.T
	now fallback.Moment
	*fallback.Partition
	sent []sent
}

// newLab returns a formatted partition, Shared and not in Grace, at a round time whose epoch is
// 1,000,000.
func newLab(t *testing.T) *lab {
	l := &lab{t: t, Partition: new(fallback.Partition)}
	l.now = fallback.Moment{Now: 1000 * (fallback.EpochZero + 1_000_000), Server: "A", Grace: quiet.Milliseconds()}
	l.Format(l.now, 0)
	return l
}

func (l *lab) pass(d time.Duration) { l.now.Now += d.Milliseconds() }

func (l *lab) send(session string, m fallback.Message) { l.sent = append(l.sent, sent{session, m}) }

// messages returns the messages sent since the last call.
func (l *lab) messages() []sent {
	s := l.sent
	l.sent = nil
	return s
}

func (l *lab) lock(key string, me fallback.Identity) fallback.LockAnswer {
	return l.Lock(l.now, fallback.LockRequest{Key: key, Me: me, Block: 1, Wait: true}, l.send)
}

func (l *lab) unlock(key string, me fallback.Identity) bool {
	return l.Unlock(l.now, key, me, l.send)
}

func (l *lab) own(session string) uint32 {
	l.t.Helper()
	a := l.Acquire(l.now, session, fallback.Expect{Epoch: l.Load(l.now).Epoch})
	if a.Verdict != fallback.Granted {
		l.t.Fatalf("Acquire: got %+v, want granted", a)
	}
	return a.Record.Epoch
}

func (l *lab) queue(key string) (q []fallback.Identity) {
	for _, w := range l.Queues[key] {
		q = append(q, w.Identity)
	}
	return q
}

func row(session string, request uint64, epoch, seq uint32) fallback.Row {
	return fallback.Row{Identity: id(session, request), Token: fallback.MakeToken(epoch, seq)}
}

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

// operations are all operations on a partition, as "me" with the key "k".
var operations = map[string]func(l *lab) any{
	"Load":           func(l *lab) any { return l.Load(l.now).Grace },
	"Verify":         func(l *lab) any { return l.Verify(l.now, fallback.Read{Keys: []string{"k"}}).Record.Grace },
	"Lock":           func(l *lab) any { return l.lock("k", id("me", 1)).Verdict },
	"Unlock":         func(l *lab) any { return l.unlock("k", id("me", 1)) },
	"Acquire":        func(l *lab) any { return l.Acquire(l.now, "me", fallback.Expect{Epoch: l.Epoch}).Verdict },
	"Demote":         func(l *lab) any { return l.Demote(l.now, "me", l.Epoch, nil).Verdict },
	"DemoteUnserved": func(l *lab) any { return l.DemoteUnserved(l.now, "me", l.Epoch).Verdict },
	"Revoke":         func(l *lab) any { l.Revoke(l.now, 7, l.Epoch, l.send); return len(l.sent) },
	"Adopt":          func(l *lab) any { return l.Adopt(l.now, "k", row("me", 1, l.Epoch, 9), l.Epoch) },
	"ReclaimRow":     func(l *lab) any { return l.ReclaimRow(l.now, "k", row("me", 1, l.Epoch, 9)) },
	"ReclaimOwner":   func(l *lab) any { return l.ReclaimOwner(l.now, "me", l.Epoch).Verdict },
}

// The transitions of each state, and the verdicts. I7 is the lower half.
func TestEachStateAllowsWhatItShould(t *testing.T) {
	states := map[string]func(l *lab){
		"Shared":         func(*lab) {},
		"Owned by me":    func(l *lab) { l.own("me") },
		"Owned by other": func(l *lab) { l.own("other") },
		"held by me":     func(l *lab) { l.lock("k", id("me", 1)) },
		"held by other":  func(l *lab) { l.lock("k", id("other", 1)) },

		"Grace, Shared":         func(l *lab) { l.now.Server = "B" },
		"Grace, Owned by me":    func(l *lab) { l.own("me"); l.now.Server = "B" },
		"Grace, Owned by other": func(l *lab) { l.own("other"); l.now.Server = "B" },
		"Grace, held by me":     func(l *lab) { l.lock("k", id("me", 1)); l.now.Server = "B" },
		"Grace, held by other":  func(l *lab) { l.lock("k", id("other", 1)); l.now.Server = "B" },
	}
	const (
		granted, held, owned           = fallback.Granted, fallback.Held, fallback.Owned
		inGrace, conflict, stale, lost = fallback.InGrace, fallback.Conflict, fallback.Stale, fallback.Lost
	)
	none := time.Duration(0)
	type answers map[string]any
	for state, x := range map[string]answers{
		"Shared": {"Load": none, "Verify": none, "Lock": granted, "Unlock": false, "Acquire": granted,
			"Demote": stale, "DemoteUnserved": stale, "Revoke": 0, "Adopt": granted, "ReclaimRow": lost, "ReclaimOwner": lost},
		"Owned by me": {"Load": none, "Verify": none, "Lock": owned, "Unlock": false, "Acquire": conflict,
			"Demote": granted, "DemoteUnserved": granted, "Revoke": 1, "Adopt": granted, "ReclaimRow": lost, "ReclaimOwner": granted},
		"Owned by other": {"Load": none, "Verify": none, "Lock": owned, "Unlock": false, "Acquire": conflict,
			"Demote": stale, "DemoteUnserved": stale, "Revoke": 1, "Adopt": granted, "ReclaimRow": lost, "ReclaimOwner": lost},
		"held by me": {"Load": none, "Verify": none, "Lock": granted, "Unlock": true, "Acquire": granted,
			"Demote": stale, "DemoteUnserved": stale, "Revoke": 0, "Adopt": granted, "ReclaimRow": lost, "ReclaimOwner": lost},
		"held by other": {"Load": none, "Verify": none, "Lock": held, "Unlock": false, "Acquire": granted,
			"Demote": stale, "DemoteUnserved": stale, "Revoke": 0, "Adopt": granted, "ReclaimRow": lost, "ReclaimOwner": lost},

		"Grace, Shared": {"Load": quiet, "Verify": quiet, "Lock": inGrace, "Unlock": false, "Acquire": inGrace,
			"Demote": inGrace, "DemoteUnserved": inGrace, "Revoke": 0, "Adopt": granted, "ReclaimRow": granted, "ReclaimOwner": granted},
		"Grace, Owned by me": {"Load": quiet, "Verify": quiet, "Lock": inGrace, "Unlock": false, "Acquire": inGrace,
			"Demote": inGrace, "DemoteUnserved": inGrace, "Revoke": 1, "Adopt": granted, "ReclaimRow": granted, "ReclaimOwner": granted},
		"Grace, Owned by other": {"Load": quiet, "Verify": quiet, "Lock": inGrace, "Unlock": false, "Acquire": inGrace,
			"Demote": inGrace, "DemoteUnserved": inGrace, "Revoke": 1, "Adopt": granted, "ReclaimRow": granted, "ReclaimOwner": granted},
		"Grace, held by me": {"Load": quiet, "Verify": quiet, "Lock": inGrace, "Unlock": true, "Acquire": inGrace,
			"Demote": inGrace, "DemoteUnserved": inGrace, "Revoke": 0, "Adopt": granted, "ReclaimRow": granted, "ReclaimOwner": granted},
		"Grace, held by other": {"Load": quiet, "Verify": quiet, "Lock": inGrace, "Unlock": false, "Acquire": inGrace,
			"Demote": inGrace, "DemoteUnserved": inGrace, "Revoke": 0, "Adopt": granted, "ReclaimRow": granted, "ReclaimOwner": granted},
	} {
		for name, run := range operations {
			l := newLab(t)
			states[state](l)
			l.messages()
			want(t, fmt.Sprintf("%s in %q", name, state), run(l), x[name])
		}
	}
}

// Every operation checks the server's identity before anything else.
func TestEveryOperationNoticesAnotherServer(t *testing.T) {
	for name, run := range operations {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			for _, server := range []string{"B", "A", "C"} { // A -> B -> A has another identity in truth, and none here is trusted
				l.now.Server = server
				l.pass(time.Second)
				run(l)
				want(t, "server", l.Server, server)
				want(t, "end of Grace", l.GraceEnd, l.now.Now+l.now.Grace)
			}
			l.pass(time.Second)
			run(l)
			want(t, "end of Grace, on the same server", l.GraceEnd, l.now.Now+l.now.Grace-1000)
		})
	}
}

// A server that takes another name, in the same process and without having followed another one,
// has lost nothing.
func TestServerThatIsRenamedIsNotInGrace(t *testing.T) {
	for name, run := range operations {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.Process, l.now.Process = "run", "run"
			before := l.Epoch
			l.now.Server = "A, renamed"
			l.pass(time.Second)
			if run(l); name == "Lock" {
				want(t, "token", l.Rows["k"].Token > fallback.MakeToken(before, 0), true)
			}
			want(t, "server", l.Server, "A, renamed")
			want(t, "end of Grace", l.GraceEnd, 0)
			if l.Owner == "" && l.Epoch == before {
				t.Error("the epoch is the same as under the name before")
			}
		})
	}
	for name, change := range map[string]func(*lab){
		"another process":    func(l *lab) { l.now.Process = "another" },
		"a successor":        func(l *lab) { l.now.Successor = true },
		"no process is told": func(l *lab) { l.Process, l.now.Process = "", "" },
	} {
		l := newLab(t)
		l.Process, l.now.Process = "run", "run"
		l.now.Server = "B"
		change(l)
		l.Load(l.now)
		want(t, name+": end of Grace", l.GraceEnd, l.now.Now+l.now.Grace)
	}
}

// A Grace that has begun goes on under another name of the server.
func TestRenamingDoesNotEndGrace(t *testing.T) {
	l := newLab(t)
	l.Process, l.now.Process, l.now.Server = "run", "another", "B"
	l.Load(l.now)
	end := l.GraceEnd
	l.now.Server = "B, renamed"
	l.pass(time.Second)
	l.Load(l.now)
	want(t, "end of Grace", l.GraceEnd, end)
}

// A missing record in a formatted namespace is lost data.
func TestEveryOperationNoticesThatTheRecordIsLost(t *testing.T) {
	for name, run := range operations {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.own("me")
			*l.Partition = fallback.Partition{}
			run(l)
			want(t, "server", l.Server, "A")
			want(t, "end of Grace", l.GraceEnd, l.now.Now+l.now.Grace)
		})
	}
}

func TestGraceLastsQ(t *testing.T) {
	for name, run := range operations {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.now.Server = "B"
			l.Load(l.now)
			l.pass(quiet - time.Millisecond)
			run(l)
			want(t, "in Grace at the last moment", l.GraceEnd != 0, true)
			l.pass(time.Millisecond)
			run(l)
			want(t, "in Grace after it", l.GraceEnd != 0, false)
		})
	}
}

func TestGraceEndsWithANewEpochForWhatNobodyOwns(t *testing.T) {
	l := newLab(t)
	before := l.lock("k", id("alice", 1)).Token
	l.now.Server = "B"
	l.Load(l.now)
	want(t, "epoch in Grace", l.Epoch, before.Epoch())
	l.pass(quiet)
	want(t, "epoch", l.Load(l.now).Epoch, before.Epoch()+uint32(quiet/time.Second))
	epoch := l.Epoch
	l.pass(time.Hour)
	want(t, "epoch, as it ends only once", l.Load(l.now).Epoch, epoch)
	want(t, "row", l.Rows["k"].Token, before)

	owned := l.own("owner")
	l.now.Server = "C"
	l.Load(l.now)
	l.pass(quiet)
	want(t, "record of an owner", l.Load(l.now), fallback.Record{Owner: "owner", Epoch: owned})
}

func TestClockThatStepsBackDoesNotProlongGrace(t *testing.T) {
	l := newLab(t)
	l.now.Server = "B"
	l.Load(l.now)
	l.pass(-time.Hour)
	want(t, "Grace", l.Load(l.now).Grace, quiet)
	l.pass(quiet)
	want(t, "Grace, Q later", l.Load(l.now).Grace, 0)
}

func TestFormat(t *testing.T) {
	now := fallback.Moment{Now: 1000 * (fallback.EpochZero + 5), Server: "A", Grace: quiet.Milliseconds()}
	for _, grace := range []time.Duration{0, time.Millisecond, 5 * time.Second, quiet} {
		var p fallback.Partition
		p.Format(now, grace.Milliseconds())
		want(t, fmt.Sprint("Grace of a new record with ", grace), p.Load(now).Grace, grace)
		later := now
		later.Now += grace.Milliseconds()
		want(t, "record when that is over", p.Load(later), fallback.Record{Epoch: uint32(max(1, 5+grace/time.Second))})
	}
	var p fallback.Partition
	p.Format(now, time.Hour.Milliseconds())
	want(t, "Grace, of Q at most", p.Load(now).Grace, quiet)

	l := newLab(t)
	epoch := l.own("owner")
	l.Format(l.now, quiet.Milliseconds())
	want(t, "record that exists", l.Load(l.now), fallback.Record{Owner: "owner", Epoch: epoch})
	l.now.Server = "B"
	l.Format(l.now, 0)
	want(t, "record that exists on another server", l.Load(l.now), fallback.Record{Owner: "owner", Epoch: epoch, Grace: quiet})
}

// Every transition sets epoch = max(epoch + 1, seconds since a fixed date) and seq = 0.
func TestEpochIsTheClockOrOneMore(t *testing.T) {
	transitions := map[string]func(l *lab) uint32{
		"Acquire": func(l *lab) uint32 { return l.own("me") },
		"Acquire from the dead": func(l *lab) uint32 {
			x := fallback.Expect{Epoch: l.Epoch, Owner: l.Owner, OwnerDead: true}
			return l.Acquire(l.now, "heir", x).Record.Epoch
		},
		"Demote":         func(l *lab) uint32 { return l.Demote(l.now, l.Owner, l.Epoch, nil).Record.Epoch },
		"DemoteUnserved": func(l *lab) uint32 { return l.DemoteUnserved(l.now, l.Owner, l.Epoch).Record.Epoch },
	}
	for name, run := range transitions {
		for _, tt := range []struct {
			step time.Duration
			want uint32 // added to the epoch
		}{{0, 1}, {999 * time.Millisecond, 1}, {time.Second, 1}, {2 * time.Second, 2}, {time.Hour, 3600}, {-time.Hour, 1}} {
			l := newLab(t)
			if name != "Acquire" {
				l.own("owner")
				l.now.Now = 1000 * (fallback.EpochZero + int64(l.Epoch))
			} else {
				l.lock("k", id("alice", 1)) // seq is not 0
			}
			before := l.Epoch
			l.pass(tt.step)
			want(t, fmt.Sprintf("%s %v later: epoch", name, tt.step), run(l), before+tt.want)
			want(t, "seq", l.Seq, 0)
		}
	}
}

// I2, with the clock as the only witness: the record is gone, and its grants are not known any
// more.
func TestTokensRiseOverTheLossOfTheRecord(t *testing.T) {
	l := newLab(t)
	last := l.lock("k", id("alice", 1)).Token
	for range 5 {
		*l.Partition = fallback.Partition{}
		l.Load(l.now)
		l.pass(quiet)
		a := l.lock("k", id("alice", 1))
		if a.Verdict != fallback.Granted || a.Token <= last {
			t.Fatalf("got %+v after token %v", a, last)
		}
		last = a.Token
	}
}

func TestEpochBeforeTheFixedDate(t *testing.T) {
	now := fallback.Moment{Now: 1000, Server: "A", Grace: quiet.Milliseconds()}
	var p fallback.Partition
	p.Format(now, 0)
	want(t, "epoch", p.Load(now).Epoch, 1)
	want(t, "epoch of an owner", p.Acquire(now, "me", fallback.Expect{Epoch: 1}).Record.Epoch, 2)
}

func TestEpochIsBumpedBeforeSeqRunsOut(t *testing.T) {
	for _, tt := range []struct{ seq, block, epochs, first uint32 }{
		{0, 1, 0, 1},
		{0, math.MaxUint32, 0, 1},
		{1, math.MaxUint32, 1, 1},
		{math.MaxUint32 - 1, 1, 0, math.MaxUint32},
		{math.MaxUint32 - 1, 2, 1, 1},
		{math.MaxUint32, 1, 1, 1},
		{math.MaxUint32 - 7, 7, 0, math.MaxUint32 - 6},
		{math.MaxUint32 - 7, 8, 1, 1},
	} {
		l := newLab(t)
		before := l.Epoch
		l.Seq = tt.seq
		a := l.Lock(l.now, fallback.LockRequest{Key: "k", Me: id("alice", 1), Block: tt.block}, nil)
		want(t, fmt.Sprintf("token of %d after %d", tt.block, tt.seq), a.Token, fallback.MakeToken(before+tt.epochs, tt.first))
		want(t, "record", a.Record, fallback.Record{Epoch: before + tt.epochs})
		want(t, "seq", l.Seq, tt.first+tt.block-1)
	}
}

func TestRevokeIsForgottenWithTheEpoch(t *testing.T) {
	l := newLab(t)
	epoch := l.own("owner")
	l.Revoke(l.now, 7, epoch, l.send)
	want(t, "record", l.Load(l.now), fallback.Record{Owner: "owner", Epoch: epoch, Revoked: true})
	want(t, "messages", l.messages(), []sent{{"owner", fallback.Message{Kind: fallback.Revoked, Partition: 7, Epoch: epoch}}})
	l.now.Server = "B"
	want(t, "revoked in Grace", l.Load(l.now).Revoked, true)
	l.pass(quiet)
	l.DemoteUnserved(l.now, "owner", epoch)
	want(t, "revoked", l.Load(l.now).Revoked, false)
	next := l.own("owner")
	want(t, "record", l.Load(l.now), fallback.Record{Owner: "owner", Epoch: next})
	l.Revoke(l.now, 7, epoch, l.send)
	want(t, "messages for an epoch that is over", l.messages(), nil)
}

func TestMessagesMayGoNowhere(t *testing.T) {
	l := newLab(t)
	l.lock("k", id("a", 1))
	l.Lock(l.now, fallback.LockRequest{Key: "k", Me: id("b", 1), Block: 1, Wait: true}, nil)
	l.Unlock(l.now, "k", id("a", 1), nil)
	l.Revoke(l.now, 0, l.own("owner"), nil)
}

func TestCloneSharesNothing(t *testing.T) {
	l := newLab(t)
	l.lock("k", id("a", 1))
	l.lock("k", id("b", 1))
	l.lock("k", id("c", 1))
	c := l.Clone()
	before := fallback.Partition{Epoch: c.Epoch, Seq: c.Seq, Rows: maps.Clone(c.Rows), Queues: map[string][]fallback.Waiter{"k": {{Identity: id("b", 1)}, {Identity: id("c", 1)}}}}
	l.unlock("k", id("a", 1))
	l.unlock("k", id("b", 1))
	l.lock("k", id("c", 1))
	l.lock("other", id("c", 1))
	want(t, "rows of the copy", c.Rows, before.Rows)
	want(t, "queues of the copy", c.Queues, before.Queues)
	c.Unlock(l.now, "k", id("a", 1), nil)
	want(t, "row of the original", l.Rows["k"].Identity, id("c", 1))
}

// A promise that was made before the clock was set back must not keep the key for as long as the
// step.
func TestAPromiseIsCutWhenTheClockStepsBack(t *testing.T) {
	var p fallback.Partition
	m := fallback.Moment{Now: 1_795_000_000_000, Server: "s", Grace: 12_000}
	p.Format(m, 0)
	ask := func(session string) fallback.LockAnswer {
		return p.Lock(m, fallback.LockRequest{Key: "k", Me: id(session, 1), Block: 1, Wait: true}, nil)
	}
	ask("alice")
	ask("bob") // waits, and crashes
	p.Unlock(m, "k", id("alice", 1), nil)
	m.Now -= 3_600_000
	if a := ask("carol"); a.Verdict != fallback.Promised || a.Retry > fallback.PromiseFor {
		t.Errorf("%v, again in %v", a.Verdict, a.Retry)
	}
	m.Now += fallback.PromiseFor.Milliseconds()
	if a := ask("carol"); a.Verdict != fallback.Granted {
		t.Errorf("%v, again in %v", a.Verdict, a.Retry)
	}
}

// Whatever the clock says, tokens rise, or nothing is granted.
func TestTokensRiseWhateverTheClockSays(t *testing.T) {
	l := newLab(t)
	last := l.lock("k", id("me", 1)).Token
	for i, year := range []int{2031, 2200, 1970, 2069, 2030, 2106, 2137, 292277026} {
		l.now.Now = time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
		l.unlock("k", id("me", uint64(i+1)))
		if l.Refuses(l.now) != nil {
			continue
		}
		l.own("owner")
		l.DemoteUnserved(l.now, "owner", l.Epoch)
		a := l.lock("k", id("me", uint64(i+2)))
		if a.Verdict != fallback.Granted || a.Token <= last || a.Token > math.MaxInt64 {
			t.Errorf("in %d: got %+v after %v", year, a, last)
		}
		last = a.Token
	}
}
