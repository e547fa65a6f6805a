package leasetest

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// A call is one of a node's calls of the arbiter: it is sent, executed, and answered. Each step is
// a command, and each may come late. A call that fails was executed or not: its node does not know.
type call struct {
	kind     string
	key      string
	sent     time.Time
	executed bool

	// The request.
	contender *lease.Contender
	session   *lease.Session
	lock      fallback.LockRequest
	expect    fallback.Expect
	frozen    lease.Frozen
	claims    lease.Claims
	snapshot  lease.Snapshot
	rumors    []lease.Rumor
	releases  []fallback.Release
	epoch     uint32 // of a record that names this node, and that the node does not serve

	// The answer.
	answer   fallback.LockAnswer
	got      fallback.Acquisition
	demotion fallback.Demotion
	verdict  fallback.Verdict
	restored fallback.Restored
	state    fallback.State
}

// An operation is a kind of call. send returns none if there is nothing to ask.
type operation struct {
	send    func(n *Node, key string) *call
	execute func(w *World, n *Node, c *call)
	answer  func(n *Node, c *call, now time.Time, fx *lease.Effects)
	fail    func(n *Node, c *call, now time.Time, fx *lease.Effects)
}

// operations are the calls of nodes, by name.
var operations = map[string]operation{
	"contend": {(*Node).sendContend, executeContend, (*Node).answerContend, (*Node).failContend},
	"acquire": {(*Node).sendAcquire, executeAcquire, (*Node).answerAcquire, (*Node).failAcquire},
	"demote":  {(*Node).sendDemote, executeDemote, (*Node).answerDemote, (*Node).failDemote},
	"look":    {(*Node).sendLook, executeLook, (*Node).answerLook, (*Node).failLook},
	"verify":  {(*Node).sendVerify, executeVerify, (*Node).answerVerify, ignored},
	"adopt":   {(*Node).sendAdopt, executeRestore, (*Node).answerRestore, (*Node).failRestore},
	"reclaim": {(*Node).sendReclaim, executeRestore, (*Node).answerRestore, (*Node).failRestore},
	"release": {(*Node).sendRelease, executeRelease, ignored, (*Node).failRelease},
	"rumors":  {(*Node).sendRumors, executeRumors, (*Node).answerRumors, ignored},
}

func ignored(*Node, *call, time.Time, *lease.Effects) {}

// call makes the three steps at once.
func (n *Node) call(kind, key string) {
	if n.send(kind, key) {
		n.execute(kind, key)
		n.answered(kind, key)
	}
}

// send begins a call. There is one of each kind and key at a time.
func (n *Node) send(kind, key string) bool {
	if n.find(kind, key) != nil {
		return false
	}
	c := operations[kind].send(n, key)
	if c == nil {
		return false
	}
	c.kind, c.key, c.sent = kind, key, n.w.now
	n.calls = append(n.calls, c)
	return true
}

func (n *Node) find(kind, key string) *call {
	for _, c := range n.calls {
		if c.kind == kind && c.key == key {
			return c
		}
	}
	return nil
}

// execute lets the arbiter execute the call.
func (n *Node) execute(kind, key string) {
	if c := n.find(kind, key); c != nil && !c.executed {
		c.executed = true
		operations[kind].execute(n.w, n, c)
	}
}

// answered lets the node have the answer.
func (n *Node) answered(kind, key string) {
	if c := n.find(kind, key); c != nil && c.executed {
		n.event(func(now time.Time, fx *lease.Effects) { operations[kind].answer(n, c, now, fx) })
		n.over(c)
	}
}

// repeat makes a call anew after its answer was lost.
func (n *Node) repeat(kind, key string) {
	if c := n.find(kind, key); c != nil {
		c.executed = false
	}
}

// fail ends a call without an answer. The arbiter executes it later, if it has not: see
// [World.late].
func (n *Node) fail(kind, key string) {
	if c := n.find(kind, key); c != nil {
		n.event(func(now time.Time, fx *lease.Effects) { operations[kind].fail(n, c, now, fx) })
		n.over(c)
		if !c.executed {
			n.stray = append(n.stray, c)
		}
	}
}

// late lets the arbiter execute the oldest call that has failed before it was executed.
func (n *Node) late() {
	if len(n.stray) > 0 {
		c := n.stray[0]
		n.stray = n.stray[1:]
		operations[c.kind].execute(n.w, n, c)
	}
}

func (n *Node) over(c *call) {
	n.calls = slices.DeleteFunc(n.calls, func(x *call) bool { return x == c })
	if x := c.contender; x != nil && !slices.Contains(n.running, x) {
		n.withdraw(x)
	}
}

// withdraw is the end of a contender, after its last call.
func (n *Node) withdraw(x *lease.Contender) {
	n.event(func(now time.Time, fx *lease.Effects) { n.P.Withdraw(x, errNoAnswer, now, fx) })
}

func (n *Node) hears(format string, args ...any) {
	n.w.say("arbiter to "+n.Name+": "+format, args...)
}

// doubted looks after requests with calls that have failed (rule 13), as package coord does.
func (n *Node) doubted() {
	var later []lease.Doubt
	for _, d := range n.doubts {
		switch {
		case n.w.now.Before(d.When):
			later = append(later, d)
		case n.P.Has(d.Key, d.ID):
			d.When = n.w.now.Add(n.w.Times.TTL)
			later = append(later, d)
		default:
			n.w.say("%s will release %s of %s", n.Name, d.Key, identity(d.ID))
			n.releases = append(n.releases, fallback.Release{Key: d.Key, Identity: d.ID})
		}
	}
	n.doubts = later
}
