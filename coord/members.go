package coord

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/internal/unfound"
	"github.com/holdfast-go/holdfast/peer"
	"github.com/holdfast-go/holdfast/ring"
)

// members is the arbiter's list of the cluster's nodes. Only they are dialled, get partitions, and
// are believed on a stream.
type members struct {
	x    *cluster
	poke chan struct{} // capacity 1: the arbiter is to be asked
	turn chan struct{} // capacity 1: held by the one caller that asks

	mu        mutex[leafRank]      // protects the fields below
	nodes     map[string]*member   // by name
	observers map[string]card      // observers, by name, where they are sessions
	dead      map[string]time.Time // when the last session of a node was said to be dead, if it has had no other since
	left      map[string]time.Time // when a node said that it leaves. It never comes again under its name
	begun     uint64               // lists that were asked for
	done      uint64               // the latest of them that was answered
	changed   chan struct{}        // closed when one is answered or has failed
	failed    error                // why the last one was not answered
}

// member is a node that the arbiter lists.
type member struct {
	card
	sessions map[string]listing
	missed   map[string]time.Time // when each was first not listed any more
	life     nodeLife             // for NodeContext
}

// listing is when the arbiter has listed a session.
type listing struct {
	first, last time.Time
	dead        bool // the arbiter has said so since
}

func newMembers(x *cluster) *members {
	return &members{
		x: x, poke: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		nodes: make(map[string]*member), dead: make(map[string]time.Time), left: make(map[string]time.Time), changed: make(chan struct{}),
	}
}

// listEvery is the shortest time between two lists that strangers can cause.
const listEvery = 100 * time.Millisecond

// keep asks the arbiter when something is not known, until the coordinator stops.
func (m *members) keep() {
	c := m.x.c
	for {
		var again <-chan time.Time
		if m.x.unlisted() {
			again = time.After(jitter(c.opts.RenewEvery))
		}
		select {
		case <-m.poke:
		case <-again:
		case <-c.life.ctx.Done():
			return
		}
		_, _ = m.ask(c.life.ctx)
		m.x.ring.Recheck()
		select {
		case <-time.After(listEvery):
		case <-c.life.ctx.Done():
			return
		}
	}
}

// look makes keep ask the arbiter.
func (m *members) look() {
	select {
	case m.poke <- struct{}{}:
	default:
	}
}

// roll is a list of the arbiter's.
type roll struct {
	gossip  []string // where the nodes gossip
	inGrace bool     // so is the table
	partial bool     // a session was left out, as its node was found dead meanwhile: it may have another one
}

// ask lists the sessions.
func (m *members) ask(ctx context.Context) (l roll, err error) {
	c := m.x.c
	if c.remote.namespace.Load() == nil {
		return l, ErrUnavailable
	}
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return l, ctx.Err()
	}
	m.mu.Lock()
	m.begun++
	this := m.begun
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	start := c.now()
	var all fallback.Listing
	ns, err := c.space(ctx)
	if err == nil {
		all, err = ns.List(ctx)
		c.called(OpList, start, err)
	}
	var missed []string
	m.mu.Lock()
	m.failed = err
	var ends []context.CancelCauseFunc
	if err == nil {
		m.done = this
		l.inGrace = all.Grace > 0
		l.gossip, l.partial, missed, ends = m.list(all.Sessions, start)
	}
	close(m.changed)
	m.changed = make(chan struct{})
	m.mu.Unlock()
	for _, end := range ends {
		end(ErrNodeDead)
	}
	for _, session := range missed { // it may be dead
		c.sessions.others.hint(c, session)
	}
	return l, err
}

// list takes an answer of the arbiter's. A session that is not in it any more is kept for as long
// as it may take to renew: a server that lost its data lists it again then. It returns those that
// it misses for the first time, but for those that were just opened: a server that was deposed
// knows nothing of them, answers yet, and would say for good that they are dead (E6). ends are of
// the lives of nodes that are not listed any more: the arbiter may not have answered when it was
// asked about their sessions. partial is as in roll. m.mu is held.
func (m *members) list(all map[string]string, now time.Time) (gossip []string, partial bool, missed []string, ends []context.CancelCauseFunc) {
	m.observers = make(map[string]card)
	for session, text := range all {
		k := decodeCard(text)
		if k.Gossip != "" {
			gossip = append(gossip, k.Gossip)
		}
		if isObserver(k.Node) {
			if session == observerSession(k.Node) {
				m.observers[k.Node] = k
			}
			continue
		}
		if k.Node == "" {
			continue
		}
		if when, dead := m.dead[k.Node]; dead && !when.Before(now) { // since the arbiter was asked, or as it was
			partial = true
			continue
		}
		n := m.nodes[k.Node]
		if n == nil {
			n = &member{sessions: make(map[string]listing), missed: make(map[string]time.Time)}
			m.nodes[k.Node] = n
		}
		n.card = k
		x, known := n.sessions[session]
		if !known {
			x.first = m.x.c.now() // the call took a while
			if n.life.ctx == deadNode {
				n.life = nodeLife{}
			}
		}
		n.sessions[session] = listing{x.first, now, x.dead}
		delete(n.missed, session)
		delete(m.dead, k.Node)
	}
	for name, n := range m.nodes {
		for session, x := range n.sessions {
			since, known := n.missed[session]
			switch _, listed := all[session]; {
			case listed, now.Sub(x.first) < m.x.c.silenced():
			case !known:
				n.missed[session] = now
				missed = append(missed, session)
			case now.Sub(since) > m.x.c.opts.SessionTTL:
				n.drop(session)
			}
		}
		if len(n.sessions) == 0 {
			delete(m.nodes, name)
			if _, left := m.left[name]; !left && n.life.end != nil {
				ends = append(ends, n.life.end)
			}
		}
	}
	for _, gone := range []map[string]time.Time{m.dead, m.left} {
		for name, when := range gone {
			if m.nodes[name] == nil && now.Sub(when) > m.x.c.opts.SessionTTL { // by now the gossip has given up on it, too
				delete(gone, name)
			}
		}
	}
	return gossip, partial, missed, ends
}

func (n *member) drop(session string) {
	delete(n.sessions, session)
	delete(n.missed, session)
}

// has reports whether the arbiter lists a session of the node.
func (m *members) has(node string) bool {
	_, ok := m.card(node)
	return ok || !guard.Listed
}

// card returns the card that the node has published.
func (m *members) card(node string) (card, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[node]
	if n == nil {
		return card{}, false
	}
	return n.card, true
}

// owns reports whether the arbiter lists the session as the node's.
func (m *members) owns(node, session string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[node]
	if n == nil || !guard.Listed {
		return !guard.Listed
	}
	_, ok := n.sessions[session]
	return ok
}

// nodeOf returns the node that has a session, "" if the arbiter has not listed it.
func (m *members) nodeOf(session string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, n := range m.nodes {
		if _, ok := n.sessions[session]; ok {
			return name
		}
	}
	return ""
}

// sessionsOf returns the sessions of a node, the one that was listed last at the end.
func (m *members) sessionsOf(node string) (sessions []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.nodes[node]; n != nil {
		sessions = slices.Collect(maps.Keys(n.sessions))
		slices.SortFunc(sessions, func(a, b string) int { return n.sessions[a].last.Compare(n.sessions[b].last) })
	}
	return sessions
}

// listed returns all nodes, by name.
func (m *members) listed() map[string]card {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string]card, len(m.nodes))
	for name, n := range m.nodes {
		all[name] = n.card
	}
	return all
}

// byGossip returns the names of all nodes, by the address of their gossip that the arbiter lists.
func (m *members) byGossip() map[string]string {
	names := make(map[string]string)
	for name, k := range m.listed() {
		names[k.Gossip] = name
	}
	return names
}

// present returns the nodes that the last list of the arbiter's has, without those that leave or
// died since.
func (m *members) present() (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, n := range m.nodes {
		_, dead := m.dead[name]
		_, left := m.left[name]
		if !dead && !left && len(n.sessions) > len(n.missed) {
			names = append(names, name)
		}
	}
	return names
}

// registered reports whether the last list of the arbiter's has a session of the node.
func (m *members) registered(node string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[node]
	return n != nil && len(n.sessions) > len(n.missed)
}

// lists reports whether the arbiter has listed a session of a node.
func (m *members) lists(session string) bool { return m.nodeOf(session) != "" }

// forget drops a session that the arbiter says is dead, and its node if it has no other.
func (m *members) forget(session string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, n := range m.nodes {
		if _, ok := n.sessions[session]; !ok {
			continue
		}
		if n.drop(session); len(n.sessions) == 0 {
			delete(m.nodes, name)
			m.dead[name] = m.x.c.now()
		}
	}
}

// gone reports whether the arbiter has said that the last session of the node is dead, or the node
// that it leaves.
func (m *members) gone(node string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, dead := m.dead[node]
	_, left := m.left[node]
	return dead || left
}

// died reports whether the arbiter has said that the last session of the node is dead.
func (m *members) died(node string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, dead := m.dead[node]
	return dead
}

// leaves notes that a node says, on its own stream, that it leaves. It reports whether that is new.
func (m *members) leaves(node string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, known := m.left[node]
	if !known {
		m.left[node] = m.x.c.now()
	}
	return !known
}

var errUnlisted = errors.New(unfound.NoSession + ": it may have just started, or uses another server or a copy of the data")

// verify reports, as an error, that the other side of a connection is not the node that it claims
// to be. If the lists so far do not settle that, it waits for one answer of the arbiter's.
func (m *members) verify(node string, state *tls.ConnectionState) error {
	if isObserver(node) {
		return m.x.verifyObserver(node, state)
	}
	err := m.await(func(bool) error {
		switch n := m.nodes[node]; {
		case n == nil:
			return errUnlisted
		case m.x.self.identity != nil && n.Key != peer.Fingerprint(state):
			return errors.New("it has another key than the node of that name")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("coord: node %q: %w", node, err)
	}
	return nil
}

// await calls check until it has no error, or has one with fresh: then an answer of the arbiter's
// has come that was asked for since await began. It waits for a second at most. check is called
// with m.mu held.
func (m *members) await(check func(fresh bool) error) error {
	ctx, cancel := context.WithTimeout(m.x.c.life.ctx, time.Second)
	defer cancel()
	m.mu.Lock()
	enough := m.begun + 1 // one that is asked for from now on
	m.mu.Unlock()
	for {
		m.mu.Lock()
		fresh, failed, changed := m.done >= enough, m.failed, m.changed
		err := check(fresh)
		m.mu.Unlock()
		if err == nil || fresh {
			return err
		}
		m.look()
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(err, failed)
		}
	}
}

// discover returns the gossip addresses that are registered at the arbiter. It asks unless all
// nodes are here, and the addresses that it found last are theirs: as many may be here as then,
// although one has left since. Nor is any missed: one that was killed may have another at its
// address by now.
func (x *cluster) discover(ctx context.Context) ([]string, error) {
	if n := x.heard.registered.Load(); n > 0 { // else there may be no ring yet
		here := map[string]bool{x.ring.Gossip(): true}
		for _, node := range x.ring.View().Live() {
			here[node.Gossip] = true
			if !node.Unlisted { // else it has no session
				n--
			}
		}
		if n == 0 && x.missing() == 0 && !slices.ContainsFunc(x.begin.addrs, func(addr string) bool { return !here[addr] }) {
			return x.begin.addrs, nil
		}
	}
	list, err := x.members.ask(ctx)
	if err == nil {
		x.begin.addrs = list.gossip
	}
	return list.gossip, err
}

// follow keeps the streams as the membership says, and the node's state as its session is, until
// the coordinator stops.
func (x *cluster) follow() {
	for {
		v := x.ring.View()
		peers := make(map[string]string)
		for _, n := range v.Nodes() {
			if n.Name == x.self.name || n.Gone || n.Incompatible {
				continue
			}
			if n.State == ring.Leaving {
				x.members.leaves(n.Name)
			}
			if k, ok := x.members.card(n.Name); ok && k.Peer != "" {
				peers[n.Name] = k.Peer
			} else if !guard.Listed {
				peers[n.Name] = n.Peer
			}
		}
		if x.unlisted() {
			x.members.look()
		}
		x.net.SetPeers(peers)
		x.watch(v)
		x.c.sessions.others.again()
		x.rerouted()
		x.poke()
		if s := x.c.sessions.current(); s != nil && s.guarded != nil {
			s.guarded.wake() // one of its guardians may leave
		}
		select {
		case <-v.Replaced():
		case <-x.c.life.ctx.Done():
			return
		}
	}
}

// unlisted reports whether there are nodes that the arbiter has not listed.
func (x *cluster) unlisted() bool {
	return slices.ContainsFunc(x.ring.View().Live(), func(n ring.Node) bool { return n.Unlisted })
}

// missing counts the nodes that the arbiter lists, and that are no members of the gossip.
func (x *cluster) missing() (n int) {
	here := map[string]bool{x.self.name: true}
	for _, node := range x.ring.View().Live() {
		here[node.Name] = true
	}
	for _, name := range x.members.present() {
		if !here[name] {
			n++
		}
	}
	return n
}
