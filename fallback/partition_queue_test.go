package fallback_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// Rules 9 and 11: unlock removes that very row, in any state; and a waiter of that name.
func TestUnlockTakesTheWaiterOutInAnyState(t *testing.T) {
	for name, change := range map[string]func(l *lab){
		"Shared": func(*lab) {},
		"Owned":  func(l *lab) { l.own("owner") },
		"Grace":  func(l *lab) { l.now.Server = "B" },
	} {
		l := newLab(t)
		l.lock("k", id("alice", 1))
		l.lock("k", id("bob", 1))
		l.lock("k", id("bob", 2))
		change(l)
		want(t, name+": removed", l.unlock("k", id("bob", 1)), false)
		want(t, name+": queue", l.queue("k"), []fallback.Identity{id("bob", 2)})
		want(t, name+": holder", l.Rows["k"].Identity, id("alice", 1))
	}
}

func TestNobodyIsWokenWhereNothingCanBeTaken(t *testing.T) {
	for name, change := range map[string]func(l *lab){
		"Owned": func(l *lab) { l.own("owner") },
		"Grace": func(l *lab) { l.now.Server = "B" },
	} {
		l := newLab(t)
		l.lock("k", id("alice", 1))
		l.lock("k", id("bob", 1))
		change(l)
		l.messages()
		want(t, name+": removed", l.unlock("k", id("alice", 1)), true)
		var told []sent // the owner is, and no other session
		if name == "Owned" {
			told = []sent{{"owner", fallback.Message{Kind: fallback.Freed, Key: "k", Session: "alice", Request: 1}}}
		}
		want(t, name+": messages", l.messages(), told)
		want(t, name+": queue", l.Queues["k"], []fallback.Waiter{{Identity: id("bob", 1)}})
	}
}

// Rule 9: the session that released it may have no way to tell the owner, which has read the row.
func TestTheOwnerIsToldOfARelease(t *testing.T) {
	l := newLab(t)
	l.lock("k", id("alice", 1))
	l.own("owner")
	l.messages()
	l.unlock("k", id("bob", 1))
	want(t, "messages about nothing", l.messages(), nil)
	l.unlock("k", id("alice", 1))
	got := l.messages()
	if len(got) != 1 || got[0].to != "owner" || got[0].Message != (fallback.Message{Kind: fallback.Freed, Key: "k", Session: "alice", Request: 1}) {
		t.Errorf("messages: %+v", got)
	}
}

// Rule 15: a waiter is woken, not a herd; and the free key is kept for it, but not for ever.
func TestPromiseHoldsForItsTime(t *testing.T) {
	l := newLab(t)
	wake := func(session string) []sent {
		return []sent{{session, fallback.Message{Kind: fallback.Wake, Key: "k", Request: 1}}}
	}
	l.lock("k", id("holder", 1))
	for _, session := range []string{"a", "b", "c"} {
		l.lock("k", id(session, 1))
	}
	l.messages()
	l.unlock("k", id("holder", 1))
	want(t, "messages", l.messages(), wake("a"))

	l.pass(fallback.PromiseFor - time.Millisecond)
	x := l.lock("k", id("d", 1))
	want(t, "verdict for a newcomer", x.Verdict, fallback.Promised)
	want(t, "retry", x.Retry, time.Millisecond)
	want(t, "verdict for the next", l.lock("k", id("b", 1)).Verdict, fallback.Promised)
	want(t, "messages", l.messages(), nil)

	l.pass(time.Millisecond)
	x = l.lock("k", id("c", 1))
	want(t, "verdict for one that is not next", x.Verdict, fallback.Promised)
	want(t, "retry", x.Retry, fallback.PromiseFor)
	want(t, "messages", l.messages(), wake("b"))
	want(t, "queue without the one that did not come", l.queue("k"), []fallback.Identity{id("b", 1), id("c", 1), id("d", 1)})

	l.pass(time.Hour)
	want(t, "verdict for the next, who was woken and comes late but first", l.lock("k", id("b", 1)).Verdict, fallback.Granted)
	want(t, "verdict for the one that did not come", l.lock("k", id("a", 1)).Verdict, fallback.Held)
	want(t, "queue", l.queue("k"), []fallback.Identity{id("c", 1), id("d", 1), id("a", 1)})
}

func TestPromisesThatAllLapsedFreeTheKey(t *testing.T) {
	l := newLab(t)
	l.lock("k", id("holder", 1))
	l.lock("k", id("a", 1))
	l.unlock("k", id("holder", 1))
	l.pass(fallback.PromiseFor)
	want(t, "verdict", l.Lock(l.now, fallback.LockRequest{Key: "k", Me: id("b", 1), Block: 1}, nil).Verdict, fallback.Granted)
	want(t, "queues", len(l.Queues), 0)
}

// A waiter that was woken, and finds that another hold has come before it, waits again: as the
// last.
func TestWokenWaiterThatFindsTheKeyTakenQueuesAnew(t *testing.T) {
	l := newLab(t)
	l.lock("k", id("holder", 1))
	l.lock("k", id("a", 1))
	l.lock("k", id("b", 1))
	l.unlock("k", id("holder", 1))
	want(t, "Adopt of a hold from another rung", l.Adopt(l.now, "k", row("x", 1, l.Epoch, 99), l.Epoch), fallback.Granted)
	want(t, "verdict", l.lock("k", id("a", 1)).Verdict, fallback.Held)
	want(t, "queue", l.Queues["k"], []fallback.Waiter{{Identity: id("b", 1)}, {Identity: id("a", 1)}})
}

func TestEvictionWakesTheFirstWaiter(t *testing.T) {
	l := newLab(t)
	l.lock("k", id("ghost", 1))
	l.lock("k", id("a", 1))
	l.messages()
	evict := fallback.LockRequest{Key: "k", Me: id("b", 1), Block: 1, Wait: true, Evict: id("ghost", 1)}
	want(t, "verdict", l.Lock(l.now, evict, l.send).Verdict, fallback.Promised)
	want(t, "messages", l.messages(), []sent{{"a", fallback.Message{Kind: fallback.Wake, Key: "k", Request: 1}}})
	want(t, "rows", len(l.Rows), 0)
	want(t, "queue", l.queue("k"), []fallback.Identity{id("a", 1), id("b", 1)})
}

// I6: the answer that an owner's lost Acquire would have had; to no other session, and at no other
// epoch.
func TestAcquireKnowsItsOwnRetry(t *testing.T) {
	l := newLab(t)
	l.lock("k", id("alice", 1))
	x := fallback.Expect{Epoch: l.Epoch}
	first := l.Acquire(l.now, "me", x)
	l.pass(time.Hour)
	want(t, "answer", l.Acquire(l.now, "me", x), first)
	l.unlock("k", id("alice", 1))
	want(t, "rows, which are those of now", len(l.Acquire(l.now, "me", x).Rows), 0)
	want(t, "another's", l.Acquire(l.now, "other", x).Verdict, fallback.Conflict)
	want(t, "at another epoch", l.Acquire(l.now, "me", fallback.Expect{Epoch: x.Epoch + 1}).Verdict, fallback.Conflict)

	y := fallback.Expect{Epoch: first.Record.Epoch, Owner: "me", OwnerDead: true}
	l.Acquire(l.now, "heir", y)
	want(t, "after somebody else's", l.Acquire(l.now, "me", x).Verdict, fallback.Conflict)
	want(t, "owner", l.Owner, "heir")
}

func TestAcquireHandsOutItsOwnCopyOfTheRows(t *testing.T) {
	l := newLab(t)
	l.lock("k", id("alice", 1))
	a := l.Acquire(l.now, "me", fallback.Expect{Epoch: l.Epoch})
	clear(a.Rows)
	want(t, "rows", len(l.Rows), 1)

	table := map[string]fallback.Row{"k": row("alice", 1, a.Record.Epoch, 1)}
	l.Demote(l.now, "me", a.Record.Epoch, table)
	clear(table)
	want(t, "rows after Demote", len(l.Rows), 1)
}

// Rule 11: a client library may send a call again whose reply was lost. A caller that is told of an
// owner goes there, and must not be in the queue from the first time: others would wait behind it
// later.
func TestAWaiterThatIsToldOfAnOwnerWaitsNoMore(t *testing.T) {
	l := newLab(t)
	l.lock("k", id("alice", 1))
	l.lock("k", id("bob", 1))
	l.lock("k", id("carol", 1))
	l.own("owner")
	want(t, "verdict", l.lock("k", id("bob", 1)).Verdict, fallback.Owned)
	want(t, "queue", l.queue("k"), []fallback.Identity{id("carol", 1)})
}
