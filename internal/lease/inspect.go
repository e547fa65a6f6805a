package lease

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
)

// A Glance is the part of a key's state that comparisons of keys use.
type Glance struct {
	Name    string
	Locked  bool          // a caller of this process has the lock
	Kept    bool          // this process has a hold, and no caller has the lock
	Held    time.Duration // since the turn began, if that is known
	Wanted  bool          // others were seen to ask for the key since, and may have given up
	Waiting int           // callers of this process
	Waited  time.Duration // by the first of them
	Turns   int           // that began under the hold
	Given   time.Duration // since this node, the owner, gave the key to another node; 0: it did not, or has it back
}

// WalkAtOnce is the number of keys and waiters that a walk looks at without a rest: some 0.1 ms,
// and half a millisecond where none of them is in the processor's cache.
const WalkAtOnce = 256

// A pace counts the keys and waiters of a walk.
type pace struct {
	rest func() bool // may free the partition's mutex and lock it again
	n    int         // since the last rest
	over bool        // rest has returned false
}

// step counts one more key or waiter, and rests after each WalkAtOnce of them. It returns false if
// the walk is to end.
func (x *pace) step() bool {
	if x.n == WalkAtOnce {
		x.n, x.over = 0, !x.rest()
	}
	x.n++
	return !x.over
}

// walk calls f with each key of this node. After each WalkAtOnce keys it calls rest, which may free
// the partition's mutex and lock it again. So a walk over many keys holds up no caller. It ends
// early if rest returns false. Keys that come or go meanwhile may be left out.
func (p *Partition) walk(rest func() bool, f func(*Key)) {
	x := pace{rest: rest}
	p.walkAt(&x, f)
}

// walkAt is walk at a pace that f may share, to count waiters of each key.
func (p *Partition) walkAt(x *pace, f func(*Key)) {
	for _, k := range p.table.keys {
		if !x.step() {
			return
		}
		if k.known { // it may have gone in a rest
			f(k)
		}
	}
}

// Survey calls f with each key of this node, and rest in between, as walk does. It changes nothing.
func (p *Partition) Survey(now Moment, rest func() bool, f func(Glance)) {
	p.walk(rest, func(k *Key) { f(p.glance(k.name, k, now)) })
}

// Len returns the number of keys.
func (p *Partition) Len() int { return len(p.table.keys) }

func (p *Partition) glance(name string, k *Key, now Moment) Glance {
	g := Glance{Name: name, Waiting: k.q.Waiting(), Turns: k.q.Turns()}
	switch k.q.State() {
	case handoff.Turn:
		if g.Kept = k.empty(); !g.Kept {
			g.Locked, g.Held, g.Wanted = true, k.held(now), k.wantedSince()
		}
	case handoff.Lingering:
		g.Kept = true
	}
	if o := k.others; o != nil && o.holder != (fallback.Identity{}) && !o.imported {
		g.Given = max(now-o.granted, 1)
	}
	if g.Waiting > 0 {
		k.q.Any(func(w *Waiter) bool {
			g.Waited = w.Value.waited(now)
			return true
		})
	}
	return g
}

// held returns for how long the turn has run that runs, 0 if that is not known.
func (k *Key) held(now Moment) time.Duration {
	switch t := k.turn; {
	case t.began != Unmeasured:
		return max(now-t.began, 1)
	case k.seen == t.fence:
		return max(now-k.since, 1)
	}
	return 0
}

// waited returns for how long the caller has waited, 0 if that is not known.
func (s *Seat) waited(now Moment) time.Duration {
	if s.since == 0 {
		return 0
	}
	return max(now-s.since, 1)
}

// A KeyStatus is this node's knowledge of a key.
type KeyStatus struct {
	Glance
	Epoch uint32              // of this node's ownership of the partition, 0 if it has none
	Hold  fallback.Identity   // of this process's hold; zero if there is none or this node is its owner
	Fence uint64              // of the turn that runs
	Tag   any                 // of the key
	Share Sharer              // callers that share the turn that runs; nil if it is one caller's
	Waits []WaitStatus        // the first callers that wait
	Other HolderStatus        // of another node's hold, if this node is the owner
	Queue []fallback.Identity // of the owner: nodes that wait, in order; zero for this node
}

// A WaitStatus is a caller of this process that waits.
type WaitStatus struct {
	Waited time.Duration
	Tag    any // of its seat
}

// A HolderStatus is another node's hold as its owner knows it.
type HolderStatus struct {
	fallback.Identity
	Node  string         // that has it, "" if this node did not grant it
	Token fallback.Token // the first of the hold
}

// StatusOf returns this node's knowledge of a key, with at most so many waiters of either kind. It
// changes nothing.
func (p *Partition) StatusOf(name string, now Moment, most int) KeyStatus {
	s := KeyStatus{Glance: Glance{Name: name}}
	if p.own != nil {
		s.Epoch = p.own.epoch
	}
	k := p.table.keys[name]
	if k == nil {
		return s
	}
	s.Glance = p.glance(name, k, now)
	if k.q.State() != handoff.Idle {
		s.Hold, s.Tag = k.hold.row.Identity, p.table.tags[k]
	}
	if s.Locked {
		s.Fence = k.turn.fence
		if x := k.turn.pledge; x != nil {
			s.Share = x.callers
		}
	}
	k.q.Any(func(w *Waiter) bool {
		if len(s.Waits) == most {
			return true
		}
		s.Waits = append(s.Waits, WaitStatus{w.Value.waited(now), w.Value.Tag})
		return false
	})
	if g := k.others; g != nil {
		s.grants(g, most)
	}
	return s
}

// NamesOf returns the names of the key's holds that are not exclusive, which are held or waited
// for: if this node is the owner, those of all nodes, at most so many.
func (p *Partition) NamesOf(key string, most int) (names []string) {
	k := p.table.keys[key]
	if k == nil || k.group() == nil {
		return nil
	}
	for _, x := range k.group().keys[1:] {
		if len(names) == most {
			break
		}
		names = append(names, x.name)
	}
	return names
}

// A Request is a node's request to an owner for reading a key.
type Request struct {
	Name  string // of the hold that it asked for
	Epoch uint32 // of the ownership
	Order uint64 // of the requests of the key, from 1
}

// Behind returns the requests for reading a key that wait behind one for writing, if this node is
// the owner: the first of each node. It changes nothing.
func (p *Partition) Behind(key string, now time.Time) (all []Request) {
	k := p.table.keys[key]
	if k == nil || k.group() == nil || !p.serves(now) {
		return nil
	}
	writer := slices.IndexFunc(k.others.queue, func(c claimant) bool { return c.link != nil || k.q.Waiting() > 0 })
	if writer < 0 {
		return nil
	}
	for _, x := range k.group().keys[1:] {
		if q := x.others.queue; x.others.mode.Kind == fallback.Shared && len(q) > 0 && q[0].order > k.others.queue[writer].order {
			all = append(all, Request{x.name, p.own.epoch, q[0].order})
		}
	}
	return all
}

// Knows reports whether this node has a hold of the name, wants one, or knows of another node's.
func (p *Partition) Knows(name string) bool { return p.table.keys[name] != nil }

// grants adds the owner's knowledge of other nodes.
func (s *KeyStatus) grants(g *grants, most int) {
	if g.holder != (fallback.Identity{}) {
		s.Other = HolderStatus{Identity: g.holder, Token: g.token}
		if !g.imported {
			s.Other.Node = g.node
		}
	}
	for _, c := range g.queue[:min(len(g.queue), most)] {
		s.Queue = append(s.Queue, c.id)
	}
}
