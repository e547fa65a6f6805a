package leasetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/peer"
)

func stateOf(n *Node, x turn) (s lease.TurnState) {
	n.event(func(now time.Time, fx *lease.Effects) { s = n.P.TurnState(x.t, x.fence, now, fx) })
	return s
}

func TestTurn_ItsStates(t *testing.T) {
	w := after(t, "a b", "a lock k\n a calls")
	n := w.node("a")
	x := n.turns["k"]
	if s := stateOf(n, x); s != lease.TurnRuns || x.t.Key(x.fence) == nil || x.t.Lost() != nil {
		t.Error(s)
	}
	do(t, w, "tick 9s")
	if s := stateOf(n, x); s != lease.TurnLost || x.t.Lost() == nil || x.t.Lost().Cause != lease.SessionExpired {
		t.Error(s, x.t.Lost())
	}
	if x.t.Key(x.fence) != nil || x.t.Key(x.fence+1) != nil {
		t.Error("the key is not the lost turn's any more")
	}
	var fx lease.Effects
	if _, s := n.P.Unlock(x.t, x.fence, w.now, &fx); s != lease.TurnLost {
		t.Error(s)
	}
	if _, s := n.P.Unlock(x.t, x.fence, w.now, &fx); s != lease.TurnUnlocked {
		t.Error("the second time:", s)
	}
	if s := stateOf(n, x); s != lease.TurnUnlocked {
		t.Error(s)
	}
}

// A turn is over at the deadline of the row that it rests on, though its session lives (rule 1).
func TestTurn_ALapsedRowIsLeaseExpired(t *testing.T) {
	w := after(t, "a", "a lock k\n a calls\n tick 5s\n a renew\n tick 4s")
	n := w.node("a")
	x := n.turns["k"]
	if s := stateOf(n, x); s != lease.TurnLost || x.t.Lost().Cause != lease.LeaseExpired {
		t.Error(s, x.t.Lost())
	}
}

func TestTurn_ItsContextsEnd(t *testing.T) {
	for _, c := range []struct {
		commands string
		cause    error
	}{
		{"a unlock k", errUnlocked},
		{"tick 9s\n a watch k", errLost},
	} {
		w := after(t, "a", "a acquire\n a lock k")
		var ended []string
		for i := range 3 {
			w.node("a").turns["k"].t.OnEnd(func(cause error) { ended = append(ended, fmt.Sprint(i, cause)) })
		}
		do(t, w, c.commands)
		if !slices.Equal(ended, []string{fmt.Sprint(0, c.cause), fmt.Sprint(1, c.cause), fmt.Sprint(2, c.cause)}) {
			t.Errorf("after %q: %v", c.commands, ended)
		}
	}
}

// A turn that is passed on is not measured, as a rule: only the next caller's reading of the clock
// counts (rule 1).
func TestTurn_IsPassedOnWithoutAClock(t *testing.T) {
	w := after(t, "a b", "a acquire\n owner a\n ping")
	for range 200 { // two in 64 are measured
		do(t, w, "a lock k\n a lock k\n a unlock k\n a unlock k\n tick 1ms")
	}
	if n := w.node("a"); n.P.LastSeq() < 400 || n.P.Turns() != 0 {
		t.Error(n.P.LastSeq(), n.P.Turns())
	}
}

func TestTurn_OfManyKeys(t *testing.T) {
	w := New("a")
	do(t, w, "a acquire")
	n := w.node("a")
	for i := range 20 {
		do(t, w, fmt.Sprintf("a lock k%d", i))
		k := n.P.Find(fmt.Sprint("k", i))
		n.P.Tag(k, i)
		if k.Idle() {
			t.Error("a key that is held is idle")
		}
	}
	do(t, w, "tick 1s")
	for i := range 20 {
		do(t, w, fmt.Sprintf("a unlock k%d\n tick 1s\n a renew\n a verify\n a watch k%d", i, i))
		if n.P.Find(fmt.Sprint("k", i)) != nil {
			t.Fatal("the key is not forgotten")
		}
	}
	do(t, w, "a lock again\n a unlock again\n a close")
	if n.P.Find("again") != nil {
		t.Error("what lingers is not given back")
	}
}

func TestTurn_AWaiterThatHasItsTurnCannotLeave(t *testing.T) {
	w := after(t, "a b", "a acquire\n a lock k\n a lock k")
	n := w.node("a")
	waiter := n.waiters["k"][0]
	do(t, w, "a unlock k")
	var fx lease.Effects
	if n.P.Abandon(n.P.Find("k"), waiter, w.now, &fx) {
		t.Error("it has left")
	}
}

// contending returns a node with a contender that is the only one, after commands.
func contending(t *testing.T, commands string) (*World, *Node, *lease.Contender) {
	t.Helper()
	w := after(t, "a b", commands)
	n := w.node("a")
	if len(n.running) != 1 {
		t.Fatal(n.running)
	}
	return w, n, n.running[0]
}

func TestContender_OneThatIsOverAsksNothing(t *testing.T) {
	w, n, x := contending(t, "a lock k")
	do(t, w, "a leave k")
	n.event(func(now time.Time, fx *lease.Effects) {
		if _, _, _, ok := n.P.Begin(x, n.session, fx); ok || n.P.Waits(x) || n.P.Settle(x, nil, true, now, fx) {
			t.Error("it goes on")
		}
		if _, over := n.P.Redirect(x, n.ends["b"], now, fx); !over || !n.P.Home(x, now, fx) || !n.P.Install(x, n.session, 7, false, now, now, fx) {
			t.Error("it is not told that it is over")
		}
	})
}

func TestContender_AllAreSentAway(t *testing.T) {
	refused := errors.New("refused")
	for name, f := range map[string]func(n *Node, x *lease.Contender, fx *lease.Effects){
		"as the arbiter refuses": func(n *Node, x *lease.Contender, fx *lease.Effects) { n.P.Settle(x, refused, true, n.w.now, fx) },
		"as it has ended early":  func(n *Node, x *lease.Contender, fx *lease.Effects) { n.P.Withdraw(x, refused, n.w.now, fx) },
	} {
		_, n, x := contending(t, "a lock k\n a lock k")
		if !n.P.Waits(x) {
			t.Error("no caller waits")
		}
		var fx lease.Effects
		f(n, x, &fx)
		if fx.Wake == nil || len(fx.Wakes) != 1 || !fx.Wake.Value.Refused || fx.Wake.Value.Reason != refused {
			t.Errorf("%s: %+v", name, fx)
		}
	}
}

// A request whose owner the arbiter has named is sent once there is a stream to that owner (rule
// 14).
func TestContender_ItIsToldOfTheStreamToItsOwner(t *testing.T) {
	w := after(t, "a b c", "b acquire\n cut a b\n a lock k\n a lock l\n a calls\n a lock m")
	if log, _ := w.Do("a told reached c"); len(log) > 0 {
		t.Error(log)
	}
	if log, _ := w.Do("a told reached b"); len(log) != 2 {
		t.Error(log)
	}
	if log, _ := w.Do("a told reached b"); len(log) > 0 {
		t.Error("again:", log)
	}
}

// The arbiter redirects to an owner whose stream has ended meanwhile (rule 14).
func TestContender_ItsOwnerIsCutOffWhenItIsRedirected(t *testing.T) {
	w, n, x := contending(t, "b acquire\n a lock k")
	l := n.ends["b"]
	do(t, w, "cut a b")
	n.event(func(now time.Time, fx *lease.Effects) {
		if _, over := n.P.Redirect(x, l, now, fx); !over {
			t.Error("it goes on")
		}
	})
	if len(n.running) != 1 || n.running[0] == x {
		t.Error("there is no other one")
	}
}

func TestHeard_OfAnOwnershipThatIsOver(t *testing.T) {
	w := after(t, "a b", "a acquire")
	n := w.node("a")
	var fx lease.Effects
	if n.P.Heard([]lease.Rumor{{}}, fallback.State{Record: fallback.Record{Owner: "b", Epoch: 103, Revoked: true}}, w.now, &fx) != 0 {
		t.Error("another node's record counts")
	}
}

// A node asks for a partition before the last owner has given it back, and is offered it while the
// answer is on its way: it asks again at once. The offer says nothing of an owner: the arbiter is
// asked (rule 14). The same if the owner that it has found turns out to be dead meanwhile.
func TestEndAcquire_FreeMeanwhile(t *testing.T) {
	for what, free := range map[string]bool{"nothing": false, "offered": true, "a is dead": true, "c is dead": false} {
		w := after(t, "a b", "a acquire\n owner b")
		n := w.node("b")
		n.event(func(now time.Time, fx *lease.Effects) {
			n.P.BeginAcquire(fallback.Expect{})
			n.P.InTheWay("a")
			switch what {
			case "offered":
				n.P.Moved(n.ends["a"], &peer.Frame{Kind: peer.Moved, Flags: lease.FlagYours}, now, fx)
			case "a is dead", "c is dead":
				n.P.Died(what[:1], fx)
			}
			n.P.EndAcquire(now, fx)
		})
		if again := n.P.Phase() == lease.Acquiring; again != free {
			t.Errorf("%s: it asks again: %v", what, again)
		}
	}
}
