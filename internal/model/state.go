package model

import "encoding/binary"

const (
	maxNodes  = 3
	maxFrames = 3 // on a stream at the same time
	maxLate   = 2 // messages to or from the arbiter that are late at the same time
)

// none is no node. Nodes are 1, 2, 3; a node is its session.
const none = 0

// token is a fencing token with fewer bits: epoch<<16 | seq.
type token uint32

func (t token) epoch() uint16 { return uint16(t >> 16) }
func (t token) seq() uint16   { return uint16(t) }

func makeToken(epoch, seq uint16) token { return token(epoch)<<16 | token(seq) }

// row is a hold as the arbiter or an owner knows it.
type row struct {
	who, req uint8
	tok      token
}

// rowset has the rows of the key's names: that of an exclusive hold, 0, and for each node that of
// its shared one.
type rowset [maxNodes + 1]row

// name is the index of a hold's name.
func name(who uint8, shared bool) uint8 {
	if shared {
		return who
	}
	return 0
}

// beside reports whether the rows let a hold of a name in.
func (t *rowset) beside(i uint8) bool {
	for k := range t {
		if t[k].who != none && (uint8(k) == i || k == 0 || i == 0) {
			return false
		}
	}
	return true
}

// The writer of a record.
const (
	byThis  = iota // the present server
	byOther        // the one before it
	byNone         // the present server has none
)

// record is a fallback.Partition of one key. Times are in ticks from now, and one more, so that 0
// is none and 1 is now.
type record struct {
	owner, server, grace uint8
	epoch, seq, from     uint16
	rows                 rowset
}

// Lives of a node.
const (
	alive = iota
	dead  // the session is over, by its own clock or in a crash; all that is left of it are messages
)

// Where a hold is from.
const (
	fromNobody = iota // there is no hold
	fromArbiter
	fromSelf  // this node owns the partition
	fromOwner // and the owner's number: it has no row, or may have none
)

// Wants of a node.
const (
	wantNothing = iota
	wantArbiter // a request is at the arbiter
	wantOwner   // and the owner's number: a request is at the owner
)

// node is one node. A count of ticks that are left is 0 when it is past.
type node struct {
	life       uint8
	cutS, cutP bool  // no call reaches the arbiter's session slot, the partition's slot
	session    uint8 // ticks left of the session
	look       uint8 // until the clock is looked at again; only without LookInTime
	section    uint8 // ticks that a lease of the dead session would have lasted, and its caller may act on it

	// As an owner.
	own   uint16 // epoch that is served, 0: none
	seq   uint16
	slot  uint8  // ticks left of the ownership
	table rowset // the key's holders
	spoke uint8  // it has answered for those holds, which it imported, as bits (rule 17)
	quiet uint8  // ticks until all is past that was announced at the last epoch served
	never uint16 // epochs up to this one are never served

	// As a holder.
	want, wreq uint8
	reads      bool // the request is for a shared hold
	down       bool // for a downgraded one
	from       uint8
	shared     bool // the hold is
	req        uint8
	tok        token
	conf       uint8 // ticks left of the row's confirmation
	ann        uint8 // ticks left of the owner's announced deadline
	frozen     bool
	at         uint16 // epoch of the owner's answer for the hold
	rowed      bool   // there may be a row, though it is not looked after any more

	seen token // the highest that the arbiter has told of; only with Rewinds, as told
	told uint8 // the session's expiry as the arbiter told it last, as the arbiter's times

	relA, relO uint8 // requests with a release that the arbiter, an owner is still to hear of, as bits
}

// grantor is the epoch of the owner that has the hold in its table, if one does.
func (x *node) grantor() uint16 {
	if x.at != 0 {
		return x.at
	}
	return x.tok.epoch()
}

func (x *node) name(j uint8) uint8 { return name(j, x.shared) }

func (x *node) holds() bool { return x.from != fromNobody }

// takes reports whether a node accepts a grant: it holds nothing, or the exclusive hold that it
// gives back for that.
func (x *node) takes() bool { return !x.holds() || x.down && !x.shared }

// unwant makes a node want nothing any more.
func (x *node) unwant() { x.want, x.wreq, x.reads, x.down = wantNothing, 0, false, false }

// Kinds of frames from an owner to a holder.
const (
	frameGrant = iota + 1
	frameVouch // the owner answers for a hold that it imported, or that has been adopted: its epoch counts
	frameFrozen
	framePong
)

type frame struct {
	kind, req, left uint8
	tok             token // frozen, vouch: its epoch counts
}

// stream is the frames on their way, in order.
type stream struct {
	n uint8
	f [maxFrames]frame
}

// Kinds of late messages.
const (
	lateAcquire = iota + 1 // requests, that may be executed at any time
	lateDemote
	lateUnserved
	lateLock
	lateAdopt
	lateUnlock
	lateReclaimRow
	lateReclaimOwner
	answer // and a kind: its answer, that the node does not have yet
)

// message is one to the arbiter or from it that takes long, or never arrives.
type message struct {
	kind, node, age uint8
	dead            uint8 // acquire: the owner that was seen dead
	known           token // its node's highest seen token when it was sent
	epoch           uint16
	row             row
	shared          bool   // lock, adopt, reclaim: the row is of the shared name
	down            bool   // lock: for a node that has the exclusive hold
	rows            rowset // demote: the holds; acquire: the rows of the answer
}

// Kinds of faults, each with a budget.
const (
	crash = iota
	delay // a message to or from the arbiter is late
	cut   // a node from a slot of the arbiter, or two nodes from each other
	failover
	sessionFailover
	drift  // the arbiter's clock runs ahead by a tick
	step   // a node's wall clock steps forward
	rewind // the arbiter's data are those of a backup
	kinds
)

// state is that of the whole system: one partition, one key.
type state struct {
	clock   uint16 // the lowest epoch that begins in this tick
	p       record
	replica record
	copied  bool  // there is a replica that stopped following, with that record
	lag     uint8 // and has missed so many changes

	backup backup

	expiry   [maxNodes + 1]uint8 // the arbiter's table of sessions, as the record's times
	sServer  uint8
	sGrace   uint8
	node     [maxNodes + 1]node // index 0 is not used
	down     [maxNodes + 1]uint8
	streams  [maxNodes + 1][maxNodes + 1]stream
	lates    uint8
	late     [maxLate]message
	maxTok   token  // the highest that was accepted
	maxExcl  token  // the same of exclusive holds
	maxEpoch uint16 // the highest that was given out
	budget   [kinds]uint8
	faults   uint8 // all kinds together

	noted *noted // the last action's events that package spec sees; with Specified
}

func bit(i uint8) uint8 { return 1 << i }

func (s *state) linked(i, j uint8) bool {
	return i != j && s.down[i]&bit(j) == 0 && s.node[i].life == alive && s.node[j].life == alive
}

func (s *state) push(i, j uint8, f frame) bool {
	q := &s.streams[i][j]
	if q.n == maxFrames {
		return false
	}
	q.f[q.n] = f
	q.n++
	return true
}

func (s *state) pop(i, j uint8) frame {
	q := &s.streams[i][j]
	f := q.f[0]
	copy(q.f[:], q.f[1:])
	q.n--
	q.f[q.n] = frame{}
	return f
}

// send makes a message late. It reports false if there is no room.
func (s *state) send(x message) bool {
	if s.lates == maxLate {
		return false
	}
	s.late[s.lates] = x
	s.lates++
	return true
}

func (s *state) take(i uint8) message {
	x := s.late[i]
	copy(s.late[i:], s.late[i+1:])
	s.lates--
	s.late[s.lates] = message{}
	return x
}

// rows calls f with every row, wherever it is.
func (s *state) rows(f func(*row)) {
	set := func(t *rowset) {
		for k := range t {
			f(&t[k])
		}
	}
	set(&s.p.rows)
	set(&s.replica.rows)
	set(&s.backup.p.rows)
	for i := range s.node {
		set(&s.node[i].table)
	}
	for i := range s.late {
		f(&s.late[i].row)
		set(&s.late[i].rows)
	}
}

// requests calls f with every request's number outside of rows and bits.
func (s *state) requests(f func(who uint8, req *uint8)) {
	for j := uint8(1); j <= maxNodes; j++ {
		x := &s.node[j]
		f(j, &x.wreq)
		f(j, &x.req)
		for i := range s.streams {
			for k := range s.streams[i][j].n {
				f(j, &s.streams[i][j].f[k].req)
			}
		}
	}
}

// encode appends a state's bytes.
func (s *state) encode(b []byte, n uint8) []byte {
	u16 := func(v ...uint16) {
		for _, x := range v {
			b = binary.LittleEndian.AppendUint16(b, x)
		}
	}
	r := func(x row) { b = binary.LittleEndian.AppendUint32(append(b, x.who, x.req), uint32(x.tok)) }
	set := func(t *rowset) {
		for _, x := range t[:n+1] {
			if x.who != none {
				r(x)
			} else {
				b = append(b, 0)
			}
		}
	}
	rec := func(x *record) {
		b = append(b, x.owner, x.server, x.grace)
		u16(x.epoch, x.seq, x.from)
		set(&x.rows)
	}
	flag := func(v ...bool) {
		var x byte
		for i, on := range v {
			if on {
				x |= 1 << i
			}
		}
		b = append(b, x)
	}
	u16(s.clock, s.maxEpoch)
	rec(&s.p)
	flag(s.copied)
	if s.copied {
		rec(&s.replica)
		b = append(b, s.lag)
	}
	if flag(s.backup.made); s.backup.made {
		rec(&s.backup.p)
		b = append(append(b, s.backup.lag), s.backup.expiry[:]...)
	}
	b = append(b, s.sServer, s.sGrace, s.faults, s.lates)
	b = append(b, s.budget[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(s.maxTok))
	b = binary.LittleEndian.AppendUint32(b, uint32(s.maxExcl))
	for i := uint8(1); i <= n; i++ {
		x := &s.node[i]
		flag(x.cutS, x.cutP, x.frozen, x.rowed, x.reads, x.shared, x.down)
		b = append(b, x.life, x.session, x.look, x.section, s.expiry[i], s.down[i])
		u16(x.own, x.seq, x.never, x.at)
		b = append(b, x.slot, x.quiet, x.want, x.wreq, x.from, x.req, x.conf, x.ann, x.relA, x.relO, x.told, x.spoke)
		b = binary.LittleEndian.AppendUint32(b, uint32(x.tok))
		b = binary.LittleEndian.AppendUint32(b, uint32(x.seen))
		set(&x.table)
		for j := uint8(1); j <= n; j++ {
			q := &s.streams[i][j]
			b = append(b, q.n)
			for _, f := range q.f[:q.n] {
				b = binary.LittleEndian.AppendUint32(append(b, f.kind, f.req, f.left), uint32(f.tok))
			}
		}
	}
	for _, x := range s.late[:s.lates] {
		b = append(b, x.kind, x.node, x.age, x.dead)
		u16(x.epoch)
		b = binary.LittleEndian.AppendUint32(b, uint32(x.known))
		flag(x.shared, x.down)
		r(x.row)
		set(&x.rows)
	}
	return b
}
