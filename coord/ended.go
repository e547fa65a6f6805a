package coord

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/peer"
)

// ends has the ended nodes: a process of the same host has seen their processes end (G9 to G11).
// Nothing more is taken from their streams.
type ends struct {
	mu    mutex[leafRank] // protects nodes
	nodes map[string]*nodeEnd
}

type nodeEnd struct {
	since   time.Time
	seen    bool            // its end was seen; otherwise another node has only asked
	witness bool            // this node has seen its end: it tells the others
	clear   bool            // nothing of this node's rests on its word
	asking  map[*link]bool  // are told when that is so
	answers map[string]bool // the nodes that have said so of themselves
	signal  chan struct{}   // capacity 1: something has changed
}

// maxEnded is how many nodes are remembered. When there are more, the oldest one is forgotten that
// a node has only asked about.
const maxEnded = 256

var errEnded = errors.New("coord: the node's process has ended")

// node returns the entry of a node, nil if there are too many. e.mu is held.
func (e *ends) node(name string, now time.Time) *nodeEnd {
	n := e.nodes[name]
	if n != nil {
		return n
	}
	if e.nodes == nil {
		e.nodes = make(map[string]*nodeEnd)
	}
	if len(e.nodes) >= maxEnded {
		oldest := ""
		for name, n := range e.nodes {
			if !n.seen && (oldest == "" || n.since.Before(e.nodes[oldest].since)) {
				oldest = name
			}
		}
		if oldest == "" {
			return nil
		}
		delete(e.nodes, oldest)
	}
	n = &nodeEnd{since: now, asking: make(map[*link]bool), answers: make(map[string]bool), signal: make(chan struct{}, 1)}
	e.nodes[name] = n
	return n
}

// has reports whether a node's process is known to have ended.
func (e *ends) has(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.nodes[name]
	return n != nil && n.seen
}

// sees notes that a node's process has ended. It returns nil if that was known, or if there are too
// many.
func (e *ends) sees(node string, now time.Time) *nodeEnd {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.node(node, now)
	if n == nil || n.seen {
		return nil
	}
	n.seen = true
	for name, other := range e.nodes { // it need not answer about them any more
		if name != node {
			signal(other.signal)
		}
	}
	return n
}

// witnesses notes that this node has seen a node's end itself, also where it was told before.
func (e *ends) witnesses(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := e.nodes[name]; n != nil {
		n.witness = true
		signal(n.signal)
	}
}

// tells reports whether this node has to tell the others.
func (e *ends) tells(n *nodeEnd) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return n.witness
}

// asked notes that another node wants to know when nothing of this node's rests on a node's word,
// and reports whether that is so.
func (e *ends) asked(name string, by *link, now time.Time) (clear bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.node(name, now)
	if n == nil {
		return false
	}
	if !n.clear {
		n.asking[by] = true
	}
	return n.clear
}

// forget drops a node that has no session any more.
func (e *ends) forget(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.nodes, name)
}

// cut notes that a stream has ended, which may be one to an ended node.
func (e *ends) cut(l *link) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range e.nodes {
		delete(n.asking, l)
		signal(n.signal)
	}
}

// look wakes the goroutines that look after nodes.
func (e *ends) look() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range e.nodes {
		signal(n.signal)
	}
}

// answered notes that another node is clear of a node.
func (e *ends) answered(name, by string, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := e.node(name, now); n != nil && !n.answers[by] {
		n.answers[by] = true
		signal(n.signal)
	}
}

// clears notes that nothing rests on a node's word, and returns those that asked.
func (e *ends) clears(n *nodeEnd) (asking []*link) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n.clear = true
	asking = slices.Collect(maps.Keys(n.asking))
	clear(n.asking)
	return asking
}

// awaited returns the nodes of a list that have not answered, and are not known to have ended as
// well.
func (e *ends) awaited(n *nodeEnd, list []string) (names []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, name := range list {
		if other := e.nodes[name]; !n.answers[name] && (other == nil || !other.seen) {
			names = append(names, name)
		}
	}
	return names
}

// aboutEnd takes a frame about the end of a node's process.
func (x *cluster) aboutEnd(l *link, f *peer.Frame) {
	about, now := string(f.Key), x.c.now()
	switch {
	case len(about) > peer.MaxKey || about == l.Node() || about == x.self.name:
		return // nonsense, or from the one that is said to have ended
	case f.Flags == guardClear:
		x.streams.ended.answered(about, l.Node(), now)
	case x.streams.ended.asked(about, l, now):
		_ = l.s.Send(endFrame(guardClear, about))
	case x.believes(l.Node(), about):
		x.hasEnded(about)
	}
}

// believes reports whether a node can have seen the end of another one's process.
func (x *cluster) believes(witness, about string) bool {
	a, known := x.members.card(witness)
	b, listed := x.members.card(about)
	if !known || !listed {
		x.members.look() // for the next time it is said
		return false
	}
	return a.Place != "" && a.Place == b.Place
}

func endFrame(flags byte, node string) *peer.Frame {
	return &peer.Frame{Kind: peer.Guard, Flags: flags, Key: []byte(node)}
}

// hasEnded is told that a node's process has ended. Its streams end.
func (x *cluster) hasEnded(node string) {
	n := x.streams.ended.sees(node, x.c.now())
	if n == nil {
		return
	}
	for _, l := range x.all() {
		if l.Node() == node && guard.ClearCut {
			l.s.Close(errEnded)
		}
	}
	x.c.background(func() { x.outlive(node, n) })
}

// outlive looks after the keys of an ended node, until the arbiter says that its sessions are dead.
// It gets rows for this node's holds that rest on its word, and tells those that ask once none
// does. A guardian asks all others, and votes when all have answered. What is in vain is done again
// each sixth of Takeover.
func (x *cluster) outlive(node string, n *nodeEnd) {
	defer x.streams.ended.forget(node)
	ctx, every := x.c.life.ctx, x.c.opts.pingEvery()
	asks, claims, lists := pace{every: every}, pace{every: every}, pace{every: every}
	timer := time.NewTimer(every)
	defer timer.Stop()
	var clear, listed bool
	for ctx.Err() == nil && len(x.members.sessionsOf(node)) > 0 {
		now, guards := x.c.now(), x.guards(node)
		if (guards || x.streams.ended.tells(n)) && asks.due(now) {
			x.askClear(n, node)
		}
		if !clear && x.clearOf(ctx, node, &claims) {
			clear = true
			for _, l := range x.streams.ended.clears(n) {
				_ = l.s.Send(endFrame(guardClear, node))
			}
		}
		if guards && clear && (listed || lists.due(now)) {
			listed = listed || x.listsAll(ctx)
			if listed && (len(x.awaited(n, node)) == 0 || !guard.ClearAll) {
				x.votes(node)
			}
		}
		select {
		case <-n.signal:
		case <-timer.C:
			timer.Reset(every)
		case <-ctx.Done():
		}
	}
}

// pace says when something may be done again.
type pace struct {
	every time.Duration
	next  time.Time
}

// due reports whether it may be done now.
func (p *pace) due(now time.Time) bool {
	if now.Before(p.next) {
		return false
	}
	p.next = now.Add(p.every)
	return true
}

// listsAll lists the sessions, and reports whether the list has all.
func (x *cluster) listsAll(ctx context.Context) bool {
	if !guard.ListAfter {
		return true
	}
	if x.adoption().Silent {
		return false
	}
	for {
		l, err := x.members.ask(ctx)
		if err != nil || l.inGrace && guard.ListGrace {
			return false
		}
		if !l.partial { // else that node is known to be dead by now, and the next list leaves out no session of its
			return true
		}
	}
}

// guards reports whether this node guards a session of another one.
func (x *cluster) guards(node string) bool {
	s := x.c.sessions.current()
	if s == nil || s.guarded == nil {
		return false
	}
	sessions := x.members.sessionsOf(node)
	s.guarded.mu.Lock()
	defer s.guarded.mu.Unlock()
	return slices.ContainsFunc(sessions, s.guarded.guard.Guards)
}

// votes has this node vote against the sessions of an ended node. No hold rests on its word. All
// sessions have been listed since it ended: one that is not known is dead.
func (x *cluster) votes(node string) {
	s := x.c.sessions.current()
	if s == nil || s.guarded == nil {
		return
	}
	sessions := x.members.sessionsOf(node)
	live := x.live()
	s.guarded.mu.Lock()
	for _, session := range sessions {
		s.guarded.guard.Ended(session, func(other string) bool { return !live[other] })
	}
	s.guarded.mu.Unlock()
	s.guarded.wake()
}

// live returns the sessions that are listed, without those of nodes that are known to have ended.
func (x *cluster) live() map[string]bool {
	all := make(map[string]bool)
	for name := range x.members.listed() {
		if x.streams.ended.has(name) {
			continue
		}
		for _, session := range x.members.sessionsOf(name) {
			all[session] = true
		}
	}
	return all
}

// awaited returns the nodes that have yet to say that nothing of theirs rests on a node's word.
func (x *cluster) awaited(n *nodeEnd, node string) []string {
	var others []string
	for name := range x.members.listed() {
		if name != node && name != x.self.name {
			others = append(others, name)
		}
	}
	return x.streams.ended.awaited(n, others)
}

// askClear tells the nodes that have not answered that a node's process has ended, and asks them
// when nothing rests on its word.
func (x *cluster) askClear(n *nodeEnd, node string) {
	for _, l := range x.all() {
		if l.Node() != node && l.s.Frames() >= framesEnded && len(x.streams.ended.awaited(n, []string{l.Node()})) > 0 {
			_ = l.s.Send(endFrame(guardEnded, node))
		}
	}
}

// endedPasses is how many passes may be under way for ended nodes, besides those of keepAdopting.
const endedPasses = 4

// clearOf reports whether nothing of this node's rests on the word of an ended node: its streams
// have ended, and each hold that it granted has a row. It gets those rows that keepAdopting does
// not get just now.
func (x *cluster) clearOf(ctx context.Context, node string, claims *pace) bool {
	if guard.ClearCut && slices.ContainsFunc(x.all(), func(l *link) bool { return l.Node() == node }) {
		return false
	}
	if !guard.ClearRests {
		return true
	}
	all, holds := x.restsOn(node)
	if holds > 0 && !x.adoption().Silent && claims.due(x.c.now()) {
		if pass, these := x.self.adopting.begin(all, passes+endedPasses); len(these) > 0 {
			x.adoptPass(ctx, pass, these)
		}
		_, holds = x.restsOn(node)
	}
	return holds == 0
}

// restsOn counts the holds that rest on a node's word, and lists claims for their rows.
func (x *cluster) restsOn(node string) (all []claims, holds int) {
	for i := range x.c.parts {
		p := &x.c.parts[i]
		p.mu.Lock()
		list, n := p.RestsOn(node)
		p.mu.Unlock()
		if holds += n; len(list) > 0 {
			all = append(all, claims{p, lease.Claims{Holds: list}})
		}
	}
	return all, holds
}
