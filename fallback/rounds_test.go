package fallback_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// TestRound: a round is complete when each session has spoken for it, or is dead, and never in
// Grace of the table (E1, E4).
func TestRound(t *testing.T) {
	m := fallback.Moment{Now: 1_000_000, Server: "s", Process: "s", Grace: 12_000}
	var s fallback.Sessions
	s.Mark(m, "holdfast/1 grace=12s", 0)
	turn := func(id string, c fallback.RoundCall) fallback.Round {
		t.Helper()
		s.Renew(m, id, 10_000, "")
		c.Ask = true
		return s.Turn(m, id, c)
	}
	want := func(got fallback.Round, name string, complete bool) {
		t.Helper()
		if got != (fallback.Round{Name: name, Complete: complete}) {
			t.Errorf("got %+v, want %q, %t", got, name, complete)
		}
	}
	s.Open(m, "a", 10_000, "")
	s.Open(m, "b", 10_000, "")
	s.Open(m, "c", 1_000, "")
	want(turn("a", fallback.RoundCall{}), "", false)
	want(turn("a", fallback.RoundCall{Begin: "r1"}), "r1", false)
	want(turn("b", fallback.RoundCall{Begin: "r2"}), "r1", false)
	want(turn("a", fallback.RoundCall{Spoke: "r1"}), "r1", false)
	want(turn("b", fallback.RoundCall{Spoke: "r0"}), "r1", false)
	want(turn("b", fallback.RoundCall{Spoke: "r1"}), "r1", false) // c lives
	m.Now += 1_500
	want(turn("b", fallback.RoundCall{}), "r1", true)
	want(turn("b", fallback.RoundCall{Begin: "r2", After: "r1"}), "r2", false)
	want(turn("b", fallback.RoundCall{Spoke: "r1"}), "r2", false)
	m.Server, m.Process = "other", "other"
	want(turn("a", fallback.RoundCall{}), "", false) // it was the other server's
	want(turn("a", fallback.RoundCall{Begin: "r3", Spoke: "r3"}), "r3", false)
	want(turn("b", fallback.RoundCall{Spoke: "r3"}), "r3", false) // Grace
	m.Now += 12_000
	s.Open(m, "a", 10_000, "")
	s.Open(m, "b", 10_000, "")
	want(turn("a", fallback.RoundCall{}), "r3", true)
	m.Now += 12_000
	s.Open(m, "a", 10_000, "")
	want(turn("a", fallback.RoundCall{}), "", false) // it is old
}

// TestEndGrace: a Grace ends early by its name, and only one that began because the server is
// another one has a name (E2). The epoch is half a Grace ahead of the clock (E5).
func TestEndGrace(t *testing.T) {
	m := fallback.Moment{Now: 1_700_000_000_000, Server: "s", Process: "s", Grace: 12_000}
	var p fallback.Partition
	p.Format(m, 0)
	p.Load(m)
	if name := p.GraceName(); name != "" {
		t.Fatalf("a partition that is in no Grace has one named %q", name)
	}
	p.Witness(m, fallback.MakeToken(p.Epoch+5, 0))
	if r := p.Load(m); r.Grace == 0 || p.GraceName() != "" {
		t.Fatalf("Grace of older data has the name %q, %v", p.GraceName(), r)
	}
	m.Server, m.Process = "other", "other"
	p.Load(m)
	name := p.GraceName()
	m.Now += 1_000
	if ended := p.EndGrace(m, name+"0") || p.EndGrace(m, ""); ended || name == "" || p.Load(m).Grace == 0 {
		t.Fatalf("Grace %q has ended by another name: %t", name, ended)
	}
	m.Server = "another name" // of the same process
	p.Load(m)
	late := p.Clone()
	if ended := p.EndGrace(m, name); !ended || p.Load(m).Grace != 0 {
		t.Fatalf("Grace goes on: %t", ended)
	}
	if least := fallback.EpochAt(time.UnixMilli(m.Now + 6_000)); int64(p.Epoch) != least {
		t.Errorf("epoch %d after an early end, half a Grace ahead is %d", p.Epoch, least)
	}
	early := p.Epoch
	m.Now += 11_000
	if late.Load(m); late.Epoch != early+5 {
		t.Errorf("epoch %d after an early end, %d after the whole Grace", early, late.Epoch)
	}
	if p.EndGrace(m, name) || p.Epoch != early {
		t.Error("Grace has ended twice")
	}
}

// TestEndGrace_TwiceInARow: after an early end a partition has another epoch, and its server fails
// over and loses all. Epochs rise though the next Grace lasts for all of Q, and by a clock that is
// a second behind.
func TestEndGrace_TwiceInARow(t *testing.T) {
	m := fallback.Moment{Now: 1_700_000_000_000, Server: "s", Process: "s", Grace: 12_000}
	var p fallback.Partition
	p.Format(m, 0)
	m.Server, m.Process = "other", "other"
	p.Load(m)
	m.Now += 2_000
	p.EndGrace(m, p.GraceName())
	lost := p.Acquire(m, "a", fallback.Expect{Epoch: p.Epoch}).Record.Epoch
	lost = max(lost, p.DemoteUnserved(m, "a", lost).Record.Epoch)
	m.Now -= 1_000
	m.Server, m.Process = "third", "third"
	next := fallback.Partition{}
	next.Load(m) // as a lost record
	if next.GraceName() == "" {
		t.Fatal("a lost record is in no Grace")
	}
	m.Now += 12_000
	if next.Load(m); next.Epoch <= lost {
		t.Errorf("epoch %d after %d was lost", next.Epoch, lost)
	}
}

// TestEndGrace_OfAnOwner: the owner stays, with its epoch. The next epoch is half a Grace ahead of
// the clock of the early end, and the one after it is one more.
func TestEndGrace_OfAnOwner(t *testing.T) {
	m := fallback.Moment{Now: 1_700_000_000_000, Server: "s", Process: "s", Grace: 12_000}
	var p fallback.Partition
	p.Format(m, 0)
	free := p.Load(m).Epoch
	least := free + 7
	owned := p.Acquire(m, "a", fallback.Expect{Epoch: free}).Record
	m.Server, m.Process = "other", "other"
	p.Load(m)
	m.Now += 1_000
	p.EndGrace(m, p.GraceName())
	if r := p.Load(m); r.Grace != 0 || r.Owner != "a" || r.Epoch != owned.Epoch {
		t.Fatalf("after the early end: %+v, it was %+v", r, owned)
	}
	whole := p.Clone()
	whole.Load(fallback.Moment{Now: m.Now, Server: "a name", Process: "other", Grace: 12_000}) // the same process
	for _, p := range []*fallback.Partition{&p, whole} {
		m.Server = p.Server
		next := p.DemoteUnserved(m, "a", owned.Epoch).Record
		if next.Epoch < least {
			t.Errorf("epoch %d after that of an owner, want at least %d", next.Epoch, least)
		}
		if again := p.Acquire(m, "b", fallback.Expect{Epoch: next.Epoch}).Record; again.Epoch != next.Epoch+1 {
			t.Errorf("epoch %d after %d", again.Epoch, next.Epoch)
		}
	}
}
