package peer

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"time"
)

// peer is the transport's knowledge of one other node. Protected by Transport.mu.
type peer struct {
	name string
	cur  *Stream // the newest that was agreed on: to come up, up, or going down
	seen uint64  // as a follower: the highest number that the decider's go has carried

	dialler *dialler // nil if SetPeers has not named the node
}

// dialler is a goroutine that keeps trying to reach a node which has no stream.
type dialler struct {
	name    string
	addr    string // protected by Transport.mu
	ctx     context.Context
	cancel  context.CancelFunc
	failing Failure       // protected by Transport.mu; Err is nil if the last attempt did not fail
	unfound time.Time     // since when one of the two does not find the other at its arbiter; only for the goroutine that dials
	ended   chan struct{} // capacity 1: a stream has ended
	changed chan struct{} // capacity 1: addr has changed
}

// SetPeers names the nodes that shall have streams: name to address, host and port. It replaces the
// nodes named before. Nodes that have no stream are dialled until they have one; this node's own
// name is ignored. It never blocks.
//
// Streams with nodes that are not named any more are closed with [ErrRemoved]. These nodes are
// refused until they are named again, however often they dial. Their own list may be older or newer
// than ours, and a stream that comes and goes is worse than none. (The last 1024 are remembered.)
// Nodes that were never named may dial us, as they may have heard of us first; up to 256 of them
// get a stream, which SetPeers leaves alone.
func (t *Transport) SetPeers(nodes map[string]string) {
	var gone []*Stream
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return
	}
	for name, p := range t.peers {
		if _, ok := nodes[name]; ok || p.dialler == nil {
			continue
		}
		p.dialler.cancel()
		p.dialler = nil
		t.remember(name)
		if p.cur != nil {
			gone = append(gone, p.cur)
		} else {
			delete(t.peers, name)
		}
	}
	for name, addr := range nodes {
		if name == t.opts.Node || name == "" || len(name) > MaxName {
			continue
		}
		if _, ok := t.removed[name]; ok {
			delete(t.removed, name)
			t.removals = slices.DeleteFunc(t.removals, func(old string) bool { return old == name })
		}
		p := t.peer(name)
		if p.dialler == nil {
			p.dialler = t.newDialler(name, addr)
		} else if p.dialler.addr != addr {
			p.dialler.addr = addr
			p.dialler.failing = Failure{}
			wake(p.dialler.changed)
		}
	}
	t.mu.Unlock()
	for _, s := range gone {
		s.Close(ErrRemoved)
	}
}

// remember notes that the node was removed. The caller holds t.mu.
func (t *Transport) remember(name string) {
	t.removed[name] = struct{}{}
	t.removals = append(t.removals, name)
	if len(t.removals) > maxRemoved {
		delete(t.removed, t.removals[0])
		t.removals = t.removals[1:]
	}
}

// peer returns the node's record, a new one if there is none. The caller holds t.mu.
func (t *Transport) peer(name string) *peer {
	p := t.peers[name]
	if p == nil {
		p = &peer{name: name}
		t.peers[name] = p
	}
	return p
}

// may returns why there must not be a stream with the node; nil if there may. The caller
// holds t.mu.
func (t *Transport) may(name string) error {
	if t.closed {
		return refuse(codeGone, "closing")
	}
	if _, ok := t.removed[name]; ok {
		return refuse(codeGone, "the node was removed from the list of peers")
	}
	if p := t.peers[name]; p != nil && (p.dialler != nil || p.cur != nil) {
		return nil
	}
	strangers := 0
	for _, p := range t.peers {
		if p.dialler == nil {
			strangers++
		}
	}
	if strangers >= maxStrangers {
		return refuse(codeBusy, "too many streams with nodes that are not on the list of peers")
	}
	return nil
}

// claim is a follower's message to the decider about the connections that it knows.
type claim struct {
	seen uint64 // the highest number that a go carried, 0 if none
	live uint64 // the number of the stream it has, 0 if none
}

const claimSize = 16

func (c claim) encode() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, c.seen), c.live)
}

// decodeClaim decodes claimSize bytes.
func decodeClaim(b []byte) claim {
	return claim{seen: binary.BigEndian.Uint64(b), live: binary.BigEndian.Uint64(b[8:])}
}

// claim returns this node's claim about streams with the node.
func (t *Transport) claim(name string) (c claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.peers[name]; p != nil {
		c.seen = p.seen
		if p.cur != nil && !p.cur.closed.Load() {
			c.live = p.cur.id
		}
	}
	return c
}

// decide is the decider's decision about an authenticated connection: a new stream, and the
// one before it, or a refusal. The stream is the node's from now on and must be run.
func (t *Transport) decide(name string, c claim, by *conversation) (s, prev *Stream, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.may(name); err != nil {
		return nil, nil, err
	}
	p := t.peer(name)
	if cur := p.cur; cur != nil && !cur.closed.Load() {
		// A follower never takes up a number again that it has passed, so this holds for
		// ever. If it has not seen the number, the go may still be on its way, or lost: the
		// keepalive will tell.
		lost := c.seen >= cur.id && c.live != cur.id
		if !lost {
			return nil, nil, refuse(codeDuplicate, "there is a stream already")
		}
		cur.Close(ErrReplaced)
	}
	s, prev = t.register(p, by)
	s.id = s.gen
	return s, prev, nil
}

// follow takes up the connection that the decider gave a go with this number.
func (t *Transport) follow(name string, id uint64, by *conversation) (s, prev *Stream, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.may(name); err != nil {
		return nil, nil, err
	}
	if p := t.peers[name]; id == 0 || p != nil && id <= p.seen {
		return nil, nil, refuse(codeDuplicate, "a newer stream was seen") // the decider has closed this one
	}
	p := t.peer(name)
	p.seen = id
	if p.cur != nil {
		p.cur.Close(ErrReplaced) // so has the decider done
	}
	s, prev = t.register(p, by)
	s.id = id
	return s, prev, nil
}

// register makes a new stream the node's current one. The caller holds t.mu.
func (t *Transport) register(p *peer, by *conversation) (s, prev *Stream) {
	t.gen++
	s, prev = newStream(t, p.name, by.sock, by.safe), p.cur
	s.frames = by.frames
	s.gen = t.gen
	p.cur = s
	return s, prev
}

// publish lets Stream find s.
func (t *Transport) publish(s *Stream) { t.update(func(m map[string]*Stream) { m[s.node] = s }) }

// unpublish undoes it. Only one stream of a node is up at a time, so it is s.
func (t *Transport) unpublish(s *Stream) { t.update(func(m map[string]*Stream) { delete(m, s.node) }) }

func (t *Transport) update(f func(map[string]*Stream)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := maps.Clone(*t.streams.Load())
	f(m)
	t.streams.Store(&m)
}

// ended forgets s, after its Down.
func (t *Transport) ended(s *Stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[s.node]
	if p == nil || p.cur != s {
		return // there is a newer one
	}
	p.cur = nil
	if p.dialler != nil {
		wake(p.dialler.ended)
	} else {
		delete(t.peers, s.node)
	}
}
