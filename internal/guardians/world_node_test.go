package guardians_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/guardians"
)

type node struct {
	w       *world
	i       int
	clock   clock
	session string
	starts  int
	up      bool
	stopped bool
	inbox   []func() // deliveries while it was stopped
	ended   bool     // the session

	lease   guardians.Instant
	ward    *guardians.Ward
	guard   *guardians.Guardian
	heard   map[string]guardians.Instant // when a session answered last
	relies  map[string]guardians.Instant // deadlines that other sessions have announced
	renewed guardians.Instant
}

func (n *node) now() guardians.Instant { return n.clock.read(n.w.now) }

// start begins a process, with a session.
func (n *node) start() {
	n.starts++
	n.session = fmt.Sprintf("%d-%d", n.i, n.starts)
	n.up, n.stopped, n.ended, n.inbox = true, false, false, nil
	n.ward, n.guard = guardians.NewWard(n.w.times), guardians.NewGuardian(n.session, n.w.times)
	n.heard, n.relies = make(map[string]guardians.Instant), make(map[string]guardians.Instant)
	n.lease = 0
	n.renew(true)
	session := n.session
	var tick func()
	tick = func() {
		if n.up && n.session == session {
			n.w.at(n, session, n.tick)
			n.w.in(n.clock.after(n.w.times.Promise/12), tick)
		}
	}
	n.w.in(n.w.delay(), tick)
}

// alive is the session by the node's clock. It changes nothing.
func (n *node) alive() bool {
	now := n.now()
	return !n.ended && now < n.lease && now < n.ward.Until()
}

// end: the session has ended, or the process, which starts anew later.
func (n *node) end() {
	n.ended = true
	n.up = false
	n.w.in(time.Duration(n.w.rand.Int64N(int64(2*time.Second))), func() {
		if !n.up && !n.w.calm {
			n.start()
		}
	})
}

// tick is a node's work, twelve times in D.
func (n *node) tick() {
	now := n.now()
	if n.lease != 0 && (now >= n.lease || !n.ward.Alive(now)) {
		n.ward.End()
		n.end()
		return
	}
	if now-n.renewed >= renew || n.ward.Names().Version != 0 && now-n.renewed >= n.w.times.Promise/4 {
		n.renew(false)
	}
	if n.lease == 0 {
		return
	}
	for _, g := range n.ward.Guardians() {
		n.ping(g)
	}
	n.keepalive()
	n.change(now)
	for _, v := range n.guard.Look(now) {
		for _, m := range v.Set.Members {
			n.tell(m, func(other *node) { other.guard.Heard(v, other.now()) })
		}
	}
	for _, b := range n.guard.Burials() {
		n.bury(b)
	}
	if n.w.rand.IntN(3) == 0 {
		n.ask()
	}
}

// tell sends something to another session.
func (n *node) tell(session string, do func(other *node)) {
	for _, other := range n.w.nodes {
		if other != n && other.session == session {
			n.w.send(n.i, other.i, session, func() { do(other) })
		}
	}
}

func (n *node) ping(g string) {
	p := n.ward.Ping(g, n.now())
	me := n.session
	n.tell(g, func(other *node) {
		pong := other.guard.Pinged(me, p, other.now())
		other.tell(me, func(*node) {
			n.ward.Promised(g, pong, n.now())
		})
	})
}

// change looks after the set: its members are those that have answered within half of D.
func (n *node) change(now guardians.Instant) {
	recorded, next, phase := n.ward.Sets()
	if phase == guardians.Asked {
		return
	}
	if n.ward.Ask(now) {
		n.w.changes++
		n.renew(false)
		return
	}
	var live []string
	for session, at := range n.heard {
		if now-at < n.w.times.Promise/2 {
			live = append(live, session)
		}
	}
	present := recorded
	if phase == guardians.Collecting {
		present = next
	}
	want := guardians.Choose(n.session, present.Members, live)
	slices.Sort(want)
	voted := false
	for _, g := range present.Members {
		_, v := n.ward.Promise(g)
		voted = voted || v >= present.Version
	}
	if !slices.Equal(want, slices.Sorted(slices.Values(present.Members))) || voted || n.w.rand.IntN(200) == 0 {
		n.ward.Propose(want)
	}
}

// keepalive is the usual traffic between nodes.
func (n *node) keepalive() {
	me := n.session
	for _, other := range n.w.nodes {
		session := other.session
		n.tell(session, func(other *node) {
			other.tell(me, func(*node) { n.heard[session] = n.now() })
		})
	}
}

func (n *node) renew(open bool) {
	w, sent, me := n.w, n.now(), n.session
	set := n.ward.Names()
	n.renewed = sent
	w.send(n.i, -1, "", func() {
		var r fallback.Renewal
		if open {
			r, _ = w.table.Open(w.moment(), me, lease.Milliseconds(), "")
		} else {
			r, _ = w.table.Renew(w.moment(), me, lease.Milliseconds(), "")
		}
		if r.Alive {
			r.Version = w.table.Guard(me, fallback.Guardians{Version: set.Version, Set: set.Members})
		}
		w.send(-1, n.i, me, func() {
			now := n.now()
			switch {
			case !r.Alive && n.lease != 0:
				n.ward.End()
				n.end()
			case !r.Alive:
				n.renew(true)
			case n.lease == 0 || now < n.lease:
				n.lease = max(n.lease, sent+lease-margin)
				for _, g := range n.ward.Recorded(r.Version, false, now) {
					n.ping(g)
				}
			}
		})
	})
}

func (n *node) bury(b guardians.Burial) {
	w, me := n.w, n.session
	w.send(n.i, -1, "", func() {
		r := w.table.Bury(w.moment(), b.Ward, b.Version, b.Voters)
		if r.Dead {
			w.died(b.Ward)
			w.buried++
		}
		w.send(-1, n.i, me, func() {
			if r.Dead {
				n.guard.Forget(b.Ward)
			} else if r.Version > b.Version {
				n.guard.Outdated(b.Ward, r.Version)
			}
		})
	})
}

// ask asks another session until when it is valid.
func (n *node) ask() {
	other := n.w.nodes[n.w.rand.IntN(len(n.w.nodes))]
	sent, me := n.now(), n.session
	n.tell(other.session, func(x *node) {
		if !x.alive() {
			return
		}
		from := x.session
		left := x.ward.Announce(x.lease, x.now())
		if n.w.asksLease {
			left = x.lease - x.now()
		}
		x.tell(me, func(*node) { n.relies[from] = max(n.relies[from], sent+left) })
	})
}

func (n *node) resume(session string) {
	if n.session != session || !n.stopped {
		return
	}
	n.stopped = false
	n.guard.Resumed(n.now(), n.w.times.Promise/3)
	inbox := n.inbox
	n.inbox = nil
	for _, do := range inbox {
		do()
	}
}
