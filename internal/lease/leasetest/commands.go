package leasetest

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
)

// commands of a node, by name. Some take a key.
var commands = map[string]func(n *Node, key string){
	"lock":    (*Node).lock,
	"unlock":  (*Node).unlock,
	"leave":   (*Node).leave,
	"calls":   (*Node).calls,
	"acquire": (*Node).acquire,
	"freeze":  (*Node).freeze,
	"demote":  (*Node).demote,
	"look":    (*Node).look,
	"verify":  (*Node).verify,
	"adopt":   (*Node).adopt,
	"release": (*Node).release,
	"renew":   (*Node).renew,
	"doubt":   (*Node).doubt,
	"watch":   (*Node).watch,
	"asked":   (*Node).asked,
	"close": func(n *Node, _ string) {
		n.event(func(now time.Time, fx *lease.Effects) { n.P.Close(errClosed, now, fx) })
	},
	"status": func(n *Node, key string) { n.w.say("%s: %s", n.Name, n.status(key)) },
}

// Do executes a command, and returns what came of it.
//
//	tick 1s            time goes on
//	deliver            all streams deliver until nothing is on its way; "deliver a b": what a has sent to b
//	ping               all nodes ask all others for how long they answer
//	cut a b            the stream between two nodes ends; "link a b": there is one again, with the statements
//	owner a            all rings name the node that should own the partition
//	dead a             the arbiter says that a's session is dead
//	failover           another server goes on with the same record; "failover empty": with none
//	record             what the arbiter has
//	a lock k           of a node: see commands
func (w *World) Do(line string) ([]string, error) {
	w.log = nil
	words := append(strings.Fields(line), "", "")
	switch words[0] {
	case "tick":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			return nil, err
		}
		w.now = w.now.Add(d)
	case "deliver":
		if words[1] != "" {
			w.deliver(w.node(words[1]), w.node(words[2]))
			break
		}
		w.deliverAll()
	case "ping":
		w.pairs(w.ping)
		w.deliverAll()
	case "cut":
		w.cut(w.node(words[1]), w.node(words[2]))
	case "link":
		w.link(w.node(words[1]), w.node(words[2]))
	case "owner":
		w.owner = words[1]
	case "dead":
		w.dead[words[1]] = true
	case "failover":
		w.server += "'"
		if words[1] == "empty" {
			w.record = fallback.Partition{}
		}
	case "record":
		w.say("%s", w.recordText())
	default:
		f := commands[words[1]]
		if f == nil || !slices.ContainsFunc(w.Nodes, func(n *Node) bool { return n.Name == words[0] }) {
			return nil, fmt.Errorf("leasetest: no command %q", line)
		}
		f(w.node(words[0]), words[2])
	}
	return w.log, nil
}

func (w *World) pairs(f func(a, b *Node)) {
	for _, a := range w.Nodes {
		for _, b := range w.Nodes {
			if e := a.ends[b.Name]; e != nil && !e.down {
				f(a, b)
			}
		}
	}
}

func (w *World) deliverAll() {
	for moved := true; moved; {
		moved = false
		w.pairs(func(a, b *Node) { moved = w.deliver(a, b) > 0 || moved })
	}
}

func (w *World) cut(a, b *Node) {
	for _, e := range []*end{a.ends[b.Name], b.ends[a.Name]} {
		e.down = true
		e.from.event(func(now time.Time, fx *lease.Effects) { e.from.P.Cut(e, now, fx) })
	}
}

// link makes a stream, with the statements of all holds (rule 12).
func (w *World) link(a, b *Node) {
	w.connect(a, b)
	w.connect(b, a)
	for _, e := range []*end{a.ends[b.Name], b.ends[a.Name]} {
		e.from.event(func(_ time.Time, fx *lease.Effects) { e.from.P.State(e, fx) })
		w.ping(e.from, e.to)
	}
	w.deliverAll()
	for _, e := range []*end{a.ends[b.Name], b.ends[a.Name]} {
		e.from.event(func(now time.Time, fx *lease.Effects) { e.from.P.Stated(e, e.to.Name, now, fx) })
	}
}

func (w *World) recordText() string {
	r := w.record.Load(w.moment())
	var rows []string
	for key, row := range w.record.Rows {
		rows = append(rows, fmt.Sprintf("%s: %s, token %s", key, identity(row.Identity), token(uint64(row.Token))))
	}
	sort.Strings(rows)
	text := "Shared"
	switch {
	case r.Grace > 0:
		text = fmt.Sprintf("Grace for %v", r.Grace)
	case r.Owner != "":
		text = "Owned by " + r.Owner
	}
	return fmt.Sprintf("%s, epoch %d; %s", text, r.Epoch, strings.Join(append(rows, "no more rows"), "; "))
}

func (n *Node) lock(key string) {
	n.event(func(now time.Time, fx *lease.Effects) {
		at := n.cfg.At(now)
		k := n.P.Live(n.P.Find(key), key, now, fx)
		if t, fence, _ := n.P.Enter(k, at); t != nil {
			n.has(key, t, fence)
			return
		}
		if t, fence := n.P.BeginOwn(k, now, at); t != nil {
			n.has(key, t, fence)
			return
		}
		w := &lease.Waiter{Value: &lease.Seat{}}
		k.Join(w)
		n.waiters[key] = append(n.waiters[key], w)
		n.P.Want(k, now, fx)
	})
}

func (n *Node) unlock(key string) {
	t, ok := n.turns[key]
	if !ok {
		n.w.say("%s has no lock of %s", n.Name, key)
		return
	}
	delete(n.turns, key)
	n.event(func(now time.Time, fx *lease.Effects) {
		if _, state := n.P.Unlock(t.t, t.fence, now, fx); state != lease.TurnRuns {
			n.w.say("%s had lost %s", n.Name, key)
		}
		if k := n.P.Find(key); k != nil && k.Idle() {
			return
		}
	})
}

// leave: the caller that waits longest gives up.
func (n *Node) leave(key string) {
	w := n.waiters[key][0]
	n.waiters[key] = n.waiters[key][1:]
	n.event(func(_ time.Time, fx *lease.Effects) { n.P.Abandon(n.P.Find(key), w, fx) })
}

// calls: contenders make their requests at the arbiter.
func (n *Node) calls(string) {
	for _, x := range slices.Clone(n.running) {
		n.event(func(now time.Time, fx *lease.Effects) {
			id, _, wait, ok := n.P.Begin(x, n.session, fx)
			if !ok {
				return
			}
			m := n.w.moment()
			r := fallback.LockRequest{Key: x.Name, Me: id, Block: lease.Block, Wait: wait}
			ans := n.w.record.Lock(m, r, nil)
			if ans.Verdict == fallback.Held && n.w.dead[ans.Holder.Session] { // rule 2
				r.Evict = ans.Holder.Identity
				ans = n.w.record.Lock(m, r, nil)
			}
			n.w.say("arbiter to %s: %v %s", n.Name, ans.Verdict, x.Name)
			switch ans.Verdict {
			case fallback.Granted:
				n.P.Install(x, n.session, ans.Token, ans.Contended, now, now, fx)
			case fallback.Owned:
				if l := (view{n}).LinkTo(ans.Record.Owner); l != nil {
					n.P.Redirect(x, l, now, fx)
				} else if ans.Record.Owner == n.Name {
					n.P.Home(x, now, fx)
				}
			}
		})
	}
}

// acquire: Acquire is called, with what the record says, and answered.
func (n *Node) acquire(string) {
	n.P.BeginAcquire()
	n.event(func(now time.Time, fx *lease.Effects) {
		m := n.w.moment()
		r := n.w.record.Load(m)
		got := n.w.record.Acquire(m, n.Name, fallback.Expect{Epoch: r.Epoch, Owner: r.Owner, OwnerDead: n.w.dead[r.Owner]})
		n.w.say("arbiter to %s: %v, epoch %d", n.Name, got.Verdict, got.Record.Epoch)
		if got.Verdict == fallback.Granted && n.P.Serve(n.session, got, now, now, fx) {
			n.w.say("%s SERVES epoch %d", n.Name, got.Record.Epoch)
		}
		n.P.EndAcquire(now, fx)
	})
}

// freeze begins to demote; demote lets the arbiter execute it, and answer.
func (n *Node) freeze(string) {
	n.event(func(now time.Time, fx *lease.Effects) {
		if n.frozen, n.demoting = n.P.BeginDemote(0, now, fx); n.demoting {
			n.w.say("%s FREEZES epoch %d", n.Name, n.frozen.Epoch)
		}
	})
}

func (n *Node) demote(string) {
	if !n.demoting {
		n.freeze("")
	}
	n.demoting = false
	d := n.w.record.Demote(n.w.moment(), n.Name, n.frozen.Epoch, n.frozen.Holds)
	n.w.say("arbiter to %s: %v, epoch %d", n.Name, d.Verdict, d.Record.Epoch)
	n.event(func(now time.Time, fx *lease.Effects) {
		n.P.EndDemote(n.frozen, d.Verdict == fallback.Granted, d.Verdict == fallback.Stale, now, now, fx)
	})
}

// look: a record that names this node, which does not serve it, is demoted, if it may be (rule 6).
func (n *Node) look(string) {
	m := n.w.moment()
	switch r := n.w.record.Load(m); {
	case r.Owner != n.Name:
		n.P.NotNamed()
		n.w.say("the record does not name %s", n.Name)
	case !n.P.MayForswear(false, n.w.now):
		n.w.say("%s has to wait", n.Name)
	case n.P.Forswear(r.Epoch):
		d := n.w.record.DemoteUnserved(m, n.Name, r.Epoch)
		n.w.say("arbiter to %s: %v, epoch %d", n.Name, d.Verdict, d.Record.Epoch)
	}
}

// verify: the node reads what the arbiter knows of its holds, and reclaims what it does not.
func (n *Node) verify(string) {
	m := n.w.moment()
	c := n.P.Check(n.session, n.w.now)
	s := fallback.State{Record: n.w.record.Load(m), Rows: make([]fallback.Row, len(c.Keys)), Wanted: make([]bool, len(c.Keys))}
	for i, key := range c.Keys {
		s.Rows[i] = n.w.record.Rows[key]
	}
	n.event(func(now time.Time, fx *lease.Effects) {
		missing, _ := n.P.Compare(c, s, now, now, fx)
		if missing.Own.Epoch > 0 {
			v := n.w.record.ReclaimOwner(m, n.Name, missing.Own.Epoch)
			n.w.say("arbiter to %s: ownership %v", n.Name, v)
			n.P.Reclaimed(missing.Own, v == fallback.Granted, now, now, fx)
		}
		n.restore(missing.Holds, now, fx)
	})
}

// adopt: holds whose owner does not answer for them get rows.
func (n *Node) adopt(string) {
	n.event(func(now time.Time, fx *lease.Effects) {
		holds, _, _ := n.P.Orphans(view{n}.Adoption(), now)
		n.restore(holds, now, fx)
	})
}

func (n *Node) restore(holds []fallback.Claim, now time.Time, fx *lease.Effects) {
	if len(holds) == 0 {
		return
	}
	verdicts := n.w.record.Restore(n.w.moment(), holds)
	for i, h := range holds {
		n.w.say("arbiter to %s: row of %s %v", n.Name, h.Key, verdicts[i])
	}
	n.P.Restored(holds, verdicts, now, now, fx)
}

// release: what was given back is released at the arbiter.
func (n *Node) release(string) {
	for _, r := range n.releases {
		n.w.record.Unlock(n.w.moment(), r.Key, r.Identity, nil)
	}
	n.releases = nil
}

// renew: the session's renewal is acknowledged, unless it has expired (rule 3).
func (n *Node) renew(string) {
	if !lease.Past(n.session.Deadline(), n.w.now) && !n.w.dead[n.Name] {
		n.session.Extend(n.w.now.Add(ttl - margin))
	}
}

// doubt: the owner asks after holders, and buries the dead.
func (n *Node) doubt(string) {
	n.event(func(now time.Time, fx *lease.Effects) {
		absent, _ := n.P.Doubtful(now, fx)
		for _, id := range absent {
			if n.w.dead[id.Session] {
				n.P.Bury(id.Session, now, fx)
			}
		}
	})
}

// watch: the node looks at the clock; and what has lingered for long enough is given back.
func (n *Node) watch(key string) {
	n.event(func(now time.Time, fx *lease.Effects) {
		n.P.Lapsed(now, fx)
		if k := n.P.Find(key); k != nil {
			n.P.Relax(k, now, fx)
		}
	})
}

// asked: the arbiter asks for the row of a key, whose node should be this one (rule 13).
func (n *Node) asked(key string) {
	n.event(func(now time.Time, fx *lease.Effects) {
		n.P.Asked(key, n.w.record.Rows[key].Identity, now, fx)
	})
}

// status tells what a node does with the partition, and what its hold of a key rests on.
func (n *Node) status(key string) string {
	text := n.P.Phase().String()
	if h, ok := n.P.HoldOf(key); ok {
		text += fmt.Sprintf(", holds %s, which rests on %v", key, h.Source)
	}
	return text
}
