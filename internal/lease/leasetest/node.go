package leasetest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/peer"
)

// lock takes the ways of a caller in package coord: the owner's, a lingering hold's, and the long
// one.
func (n *Node) lock(key string, try bool) {
	p, now := &n.P, n.w.now
	k, at := p.Find(key), n.cfg.At(n.w.now)
	exclusive := !fallback.IsName(key)
	if exclusive && p.Warm(k) && (p.Quick(at) || p.Good(now)) {
		t, fence := p.Again(k, at)
		n.has(key, t, fence)
		return
	}
	if exclusive && k == nil && p.Vacant() && (p.Quick(at) || p.Good(now)) {
		t, fence := p.Fresh(key, at)
		n.has(key, t, fence)
		return
	}
	if p.Lingers(k) {
		if t, fence, _ := p.Reenter(k, now); t != nil {
			n.has(key, t, fence)
			return
		}
	}
	if busy, _ := p.Busy(k); busy && !try {
		n.join(k, key, false)
		return
	}
	if p.Ending() != lease.Open {
		n.refused(key, errClosed)
		return
	}
	n.event(func(now time.Time, fx *lease.Effects) {
		k := p.Live(k, key, now, fx)
		t, fence, _ := p.Enter(k, at)
		if t == nil {
			t, fence = p.BeginOwn(k, now, at)
		}
		if t != nil {
			n.has(key, t, fence)
			return
		}
		if try {
			k, _ = p.GiveWay(k, now, fx)
			if reason, occupied := p.Occupied(k, now, fx); occupied {
				n.refused(key, reason)
				return
			}
		}
		n.join(k, key, try)
		p.Want(k, now, fx)
	})
}

func (n *Node) refused(key string, reason error) {
	if reason == nil {
		reason = errLocked
	}
	n.w.say("%s is refused %s: %v", n.Name, key, reason)
}

func (n *Node) join(k *lease.Key, key string, try bool) {
	w := &lease.Waiter{Value: &lease.Seat{}}
	w.Value.Reset()
	w.Value.Try = try
	k.Join(w)
	n.waiters[key] = append(n.waiters[key], w)
}

// unlock takes the ways of Unlock in package coord.
func (n *Node) unlock(key string) {
	x, ok := n.turns[key]
	if !ok {
		n.w.say("%s has no lock of %s", n.Name, key)
		return
	}
	delete(n.turns, key)
	if n.P.EndOwn(x.t, x.fence) {
		return
	}
	if w := n.P.Pass(x.t, x.fence); w != nil {
		n.woken(w)
		return
	}
	n.event(func(now time.Time, fx *lease.Effects) {
		if _, state := n.P.Unlock(x.t, x.fence, now, fx); state != lease.TurnRuns {
			n.w.say("%s had lost %s", n.Name, key)
		}
	})
}

// cede: the hold goes back, as the node has a downgraded one.
func (n *Node) cede(key string) {
	x, ok := n.turns[key]
	if !ok {
		n.w.say("%s has no lock of %s", n.Name, key)
		return
	}
	delete(n.turns, key)
	n.event(func(now time.Time, fx *lease.Effects) {
		if _, state := n.P.Cede(x.t, x.fence, now, fx); state != lease.TurnRuns {
			n.w.say("%s had lost %s", n.Name, key)
			return
		}
		n.downgraded = n.turns[fallback.DowngradedName(key, n.Name)].fence
	})
}

// leave: the caller that waits longest gives up.
func (n *Node) leave(key string) {
	if len(n.waiters[key]) == 0 {
		return
	}
	w := n.waiters[key][0]
	n.event(func(now time.Time, fx *lease.Effects) {
		if n.P.Abandon(n.P.Find(key), w, now, fx) {
			n.waiters[key] = n.waiters[key][1:]
		}
	})
}

// contendAll: contenders make their requests at the arbiter.
func (n *Node) contendAll() {
	for _, x := range slices.Clone(n.running) {
		n.call("contend", x.Name)
	}
}

// freeze begins to demote.
func (n *Node) freeze() {
	n.event(func(now time.Time, fx *lease.Effects) {
		if n.frozen, n.demoting = n.P.BeginDemote(0, now, fx); n.demoting {
			n.w.say("%s FREEZES epoch %d", n.Name, n.frozen.Epoch)
		}
	})
}

// renew: the session's renewal is acknowledged, unless it has expired (rule 3).
func (n *Node) renew() {
	if !lease.Past(n.session.Deadline(), n.w.now) && !n.w.isDead(n.session.ID) {
		n.session.Extend(n.w.now.Add(n.w.Times.lease()))
	}
}

// doubt: the owner asks after holders, and buries the dead.
func (n *Node) doubt() {
	n.event(func(now time.Time, fx *lease.Effects) {
		absent, lonely := n.P.Doubtful(now, fx)
		for _, id := range absent {
			if n.w.isDead(id.Session) {
				n.P.Bury(id.Session, now, fx)
			}
		}
		if lonely {
			n.w.say("%s is to give the partition back, as the holder cannot be asked", n.Name)
		}
	})
}

// watch: the node looks at the clock; and a hold that has lingered for long enough is given back.
func (n *Node) watch(key string) {
	n.event(func(now time.Time, fx *lease.Effects) {
		n.P.Lapsed(now, fx)
		if k := n.P.Find(key); k != nil {
			n.P.Relax(k, now, fx)
		}
	})
}

// asked: the arbiter asks for the row of a key that this node should have (rule 13). It asks the
// node of the row's session only.
func (n *Node) asked(key string) {
	id := n.w.record.Rows[key].Identity
	if strings.TrimRight(id.Session, "'") == n.Name {
		n.event(func(now time.Time, fx *lease.Effects) { n.P.Asked(key, id, now, fx) })
	}
}

var duties = map[lease.Duty]string{
	lease.DutyNone: "has nothing to do", lease.DutyLook: "is to look at the record", lease.DutyTake: "is to acquire",
	lease.DutyGive: "is to demote", lease.DutyWait: "is to wait",
}

// duty is a round of the balance. agreed: the ring is stable, and the node that it names has the
// same one (rule 4).
func (n *Node) duty(agreed string) {
	w := n.w
	d := n.P.Duty(lease.Placement{Known: w.owner != "", Mine: w.owner == n.Name, Agreed: agreed == "agreed", Outlook: lease.Outlook{Grace: agreed == "grace"}}, w.now)
	w.say("%s %s", n.Name, duties[d])
	switch d {
	case lease.DutyLook:
		n.call("look", "")
		n.P.EndLook()
	case lease.DutyTake:
		n.call("acquire", "")
	case lease.DutyGive:
		n.call("demote", "")
	}
}

// step: the wall clock of the node steps forward past its session's deadline.
func (n *Node) step() {
	s := n.session
	if n.P.Turns() > 0 {
		n.section = s.Deadline()
	}
	s.Extend(time.Time{})
	n.dead = true
	n.event(func(now time.Time, fx *lease.Effects) {
		if x, ok := n.P.FreezeStepped(s, now, fx); ok {
			n.frozen, n.demoting = x, true
			n.w.say("%s FREEZES epoch %d, as its clock has stepped", n.Name, x.Epoch)
		}
	})
}

// die: the node's session has ended by its own clock (rule 3); open begins another one.
func (n *Node) die() {
	s := n.session
	s.Extend(time.Time{})
	n.dead = true
	n.event(func(now time.Time, fx *lease.Effects) { n.P.LoseAll(s, lease.SessionExpired, now, fx) })
}

func (n *Node) open() {
	n.dead = false
	n.session = lease.NewSession(n.session.ID+"'", n.w.now.Add(n.w.Times.lease()))
}

// quit: the node leaves the cluster. Its coordinator is closed before.
func (n *Node) quit() {
	if !n.left {
		n.left = true
		if n.P.Ending() == lease.Open {
			n.event(func(now time.Time, fx *lease.Effects) { n.P.Close(errClosed, now, fx) })
		}
		n.P.Leave()
	}
	busy, owed := n.P.Left(n.w.now)
	n.w.say("%s leaves: busy %t, has the partition to give back %t", n.Name, busy, owed != "")
}

// free: the node asks for a partition of another node's to become Shared.
func (n *Node) free() {
	if !n.P.BeginFreeing() {
		n.w.say("%s is busy with the partition", n.Name)
		return
	}
	m := n.w.moment()
	r := n.w.record.Load(m)
	if n.w.isDead(r.Owner) {
		got := n.w.record.Acquire(m, n.session.ID, fallback.Expect{Epoch: r.Epoch, Owner: r.Owner, OwnerDead: true})
		n.hears("%v, epoch %d", got.Verdict, got.Record.Epoch)
		if got.Verdict == fallback.Granted {
			n.unserved(got.Record.Epoch)
		}
	} else {
		n.w.record.Revoke(m, 0, r.Epoch, nil)
		n.w.say("%s revokes epoch %d", n.Name, r.Epoch)
	}
	n.P.EndFreeing()
}

// told: a message of the arbiter's reaches the node, as a hint: "freed k b#1", "woken k a#1",
// "summoned 102", "gap", "again". "reached b": there is a stream to a session. "died b": it is dead.
// "rerouted": the ring has changed.
func (n *Node) told(args []string) {
	again := n.again
	n.event(func(now time.Time, fx *lease.Effects) {
		switch args[0] {
		case "freed":
			n.P.Freed(args[1], identityOf(args[2]), now, fx)
		case "woken":
			n.P.Woken(args[1], identityOf(args[2]), fx)
		case "summoned":
			epoch, _ := strconv.ParseUint(args[1], 10, 32)
			n.P.Summoned(uint32(epoch), fx)
		case "given":
			epoch, _ := strconv.ParseUint(args[2], 10, 32)
			n.P.Moved(n.ends[args[1]], &peer.Frame{Kind: peer.Moved, Flags: lease.FlagYours, Epoch: uint32(epoch)}, now, fx)
		case "gap":
			n.P.Gap(fx)
		case "reached":
			n.P.Reached(args[1], fx)
		case "died":
			n.P.Died(args[1], fx)
		case "rerouted":
			n.P.Rerouted(fx)
		case "again":
			n.again = nil
			for _, r := range again {
				n.P.Freed(r.Key, r.ID, now, fx)
			}
		default:
			panic("leasetest: no message " + args[0])
		}
	})
}

func identityOf(text string) fallback.Identity {
	session, number, _ := strings.Cut(text, "#")
	request, _ := strconv.ParseUint(number, 10, 64)
	return fallback.Identity{Session: session, Request: request}
}

// status tells the phase of the partition at a node, and the source of its hold of a key.
func (n *Node) status(key string) string {
	text := n.P.Phase().String()
	if h, ok := n.P.HoldOf(key); ok {
		text += fmt.Sprintf(", holds %s, which rests on %v", key, h.Source)
	}
	return text
}
