package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/fallback"
)

// A Naming explores how two Redis servers come to their names (master_replid), after Redis's
// replication.c. It follows one key's lock when clients go from one server to the other. The
// arbiter's side is package fallback's, as in a Model.
//
// Assumptions: a server that was deposed acknowledges nothing. It is promoted again only if it has
// followed the other one meanwhile. A replication backlog that is not used outlives Grace
// (repl-backlog-ttl, 1 hour by default).
type Naming struct {
	Promotions, Restarts, Renames, Grants, Ticks uint8 // how many of each there may be

	T, Q uint8 // in ticks
	TTL  uint8 // repl-backlog-ttl, in ticks

	Without NameGuard
	Check   Invariant // 0: everything

	part fallback.Partition
}

// A NameGuard is something that is looked at before a server with another name is taken for the one
// that wrote a record.
type NameGuard uint8

// Guards of names.
const (
	SameProcess   NameGuard = 1 << iota // run_id: the process is the one that wrote the record
	NoSuccessor                         // master_replid2: it was not promoted or started with data when it took its name
	RenameAdvance                       // a new name steps the epoch, as the end of Grace does
)

// redisServer is a server with its record. Names and processes are numbers, 0 is none.
type redisServer struct {
	up, primary, backlog bool
	followed, linked     bool  // as a replica: it has followed the other one, and does
	run, name, former    uint8 // run_id, master_replid, master_replid2
	since                uint8 // ticks that it has been the primary for, up to TTL
	rec, disk            namedRecord
}

type namedRecord struct {
	name, run  uint8 // of the writer
	grace      uint8 // as record.grace
	epoch, seq uint16
	holder     uint8
}

type naming struct {
	s                                            [2]redisServer
	now                                          uint8 // the one that clients use
	clock, lease                                 uint8 // lease: the rest of the holder's, by its own clock
	last                                         token // the highest that was given out
	holder, names                                uint8
	promotions, restarts, renames, grants, ticks uint8 // left
}

// Explore sees every state, or stops at the first violation and returns a shortest story of it.
func (m *Naming) Explore() (states int, broken string, story []string) {
	type origin struct {
		from int
		what string
	}
	first := naming{promotions: m.Promotions, restarts: m.Restarts, renames: m.Renames, grants: m.Grants, ticks: m.Ticks, names: 3}
	first.s[0] = redisServer{up: true, primary: true, run: 1, name: 1, since: m.TTL}
	first.s[1] = redisServer{up: true, run: 2, name: 2}
	now := m.moment(&first, &first.s[0])
	p := new(fallback.Partition)
	p.Format(now, 0)
	first.s[0].rec = readNamed(p, now.Now)
	seen := map[naming]bool{first: true}
	all, origins := []naming{first}, []origin{{-1, ""}}
	for at := 0; at < len(all) && broken == ""; at++ {
		m.next(all[at], func(n naming, what string, bad string) {
			n.renumber()
			if broken != "" || seen[n] && bad == "" {
				return
			}
			seen[n] = true
			all, origins = append(all, n), append(origins, origin{at, what})
			if bad != "" {
				broken = bad
				for i := len(all) - 1; i > 0; i = origins[i].from {
					story = append(story, origins[i].what)
				}
				slices.Reverse(story)
			}
		})
	}
	return len(all), broken, story
}

func number(n uint8) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(int(n))
}

func (m *Naming) moment(n *naming, s *redisServer) fallback.Moment {
	return fallback.Moment{
		Now: int64(n.clock)*tickMillis + 1000*epochZero, Grace: int64(m.Q) * tickMillis,
		Server: number(s.name), Process: number(s.run), Successor: s.former != 0 && m.Without&NoSuccessor == 0,
	}
}

func (m *Naming) fill(r namedRecord, now fallback.Moment) *fallback.Partition {
	p := &m.part
	*p = fallback.Partition{}
	if r.name != 0 {
		*p = fallback.Partition{Server: number(r.name), Process: number(r.run), Epoch: uint32(r.epoch), Seq: uint32(r.seq), GraceEnd: until(now.Now, r.grace)}
	}
	if r.holder != 0 {
		p.Rows = map[string]fallback.Row{key: {Identity: fallback.Identity{Session: number(r.holder)}, Token: 1}}
	}
	return p
}

func readNamed(p *fallback.Partition, now int64) (r namedRecord) {
	name, _ := strconv.Atoi(p.Server)
	run, _ := strconv.Atoi(p.Process)
	holder, _ := strconv.Atoi(p.Rows[key].Session)
	r.name, r.run, r.epoch, r.seq, r.grace, r.holder = uint8(name), uint8(run), uint16(p.Epoch), uint16(p.Seq), ticksTo(now, p.GraceEnd), uint8(holder)
	return r
}

// on runs an operation on the record of the server that clients use.
func (m *Naming) on(n *naming, f func(fallback.Moment, *fallback.Partition)) {
	s := &n.s[n.now]
	now := m.moment(n, s)
	was := s.rec
	if m.Without&SameProcess != 0 {
		was.run = s.run
	}
	p := m.fill(was, now)
	p.Load(now)
	if m.Without&RenameAdvance != 0 && was.name != s.name && was.grace == 0 && p.GraceEnd == 0 {
		p.Epoch, p.Seq = uint32(was.epoch), uint32(was.seq)
	}
	f(now, p)
	s.rec = readNamed(p, now.Now)
}

// renumber gives names and processes the lowest numbers: only which are the same matters.
func (n *naming) renumber() {
	var to [64]uint8
	n.names = 0
	for i := range n.s {
		s := &n.s[i]
		for _, x := range []*uint8{&s.run, &s.name, &s.former, &s.rec.name, &s.rec.run, &s.disk.name, &s.disk.run} {
			if *x == 0 {
				continue
			}
			if to[*x] == 0 {
				to[*x] = n.fresh()
			}
			*x = to[*x]
		}
	}
}

func (n *naming) fresh() uint8 { n.names++; return n.names }

func (m *Naming) next(was naming, emit func(naming, string, string)) {
	n := was
	c, o := &n.s[n.now], &n.s[1-n.now]               // the server that clients use, and the other one, as they become
	cur, other := &was.s[was.now], &was.s[1-was.now] // as they were
	do := func(ok bool, what string, f func()) {
		if ok {
			n = was
			f()
			emit(n, strings.NewReplacer("$c", number(was.now+1), "$o", number(2-was.now)).Replace(what), "")
		}
	}
	if cur.up && was.grants > 0 {
		n.grants--
		bad := m.lock(&n)
		emit(n, fmt.Sprintf("a client asks %d for the key; the latest token is %v of holder %d", n.now+1, n.last, n.holder), bad)
	}
	do(was.ticks > 0, "a tick", func() {
		n.ticks--
		n.pass(m.TTL)
	})
	do(cur.up && !cur.backlog && was.renames > 0, "$c makes a replication backlog for a backup", func() { n.takeName(c, true) })
	do(cur.up && cur.backlog && !other.linked && cur.since >= m.TTL && was.renames > 0, "$c frees its replication backlog", func() { n.takeName(c, false) })
	do(cur.up && cur.disk != cur.rec && was.restarts > 0, "$c writes its data to its disk", func() { c.disk = c.rec })
	do(cur.up && was.restarts > 0, "$c starts anew, with all its data", func() { n.restart(c, o, c.rec) })
	do(cur.up && was.restarts > 0 && cur.disk != cur.rec, "$c starts anew, with what is on its disk", func() { n.restart(c, o, c.disk) })
	do(cur.up && was.restarts > 0, "$c starts anew, with nothing", func() { n.restart(c, o, namedRecord{}) })
	do(!other.up && was.restarts > 0, "$o starts again as a replica of $c", func() {
		n.restart(o, c, o.rec)
		o.primary, o.former, o.backlog = false, 0, false
	})
	do(cur.up && other.up && other.primary, "$o is made a replica of $c", func() { o.primary, o.followed = false, false })
	do(cur.up && other.up && !other.primary && !other.linked && (cur.backlog || was.renames > 0), "$o follows $c", func() { n.follow(c, o) })
	do(other.linked && other.rec != cur.rec, "$o has what $c has", func() { o.rec = c.rec })
	promote := func() {
		n.promotions--
		o.former, o.name = o.name, n.fresh()
		o.primary, o.linked, o.since = true, false, 0
		n.now = 1 - n.now
	}
	do(other.up && other.followed && !other.primary && was.promotions > 0, "$o is promoted in the place of $c", promote)
	do(cur.up && other.up && other.followed && !other.primary && was.promotions > 0, "$c crashes, and $o is promoted", func() {
		c.up = false
		promote()
	})
}

func (n *naming) pass(ttl uint8) {
	n.clock++
	less(&n.lease)
	for i := range n.s {
		s := &n.s[i]
		sooner(&s.rec.grace)
		sooner(&s.disk.grace)
		if s.primary {
			s.since = min(s.since+1, ttl)
		}
	}
}

// restart does as loadDataFromDisk: a name in the dump becomes the second one.
func (n *naming) restart(s, peer *redisServer, data namedRecord) {
	n.restarts--
	now := redisServer{up: true, primary: true, run: n.fresh(), name: n.fresh(), rec: data, disk: s.disk}
	if s.backlog && data != (namedRecord{}) {
		now.former, now.backlog = s.name, true
	}
	*s = now
	peer.linked = false
}

// follow does as PSYNC: a replica of the same history keeps its name as the second one.
func (n *naming) follow(c, o *redisServer) {
	if !c.backlog {
		n.takeName(c, true)
	}
	if o.former = 0; o.name == c.former {
		o.former = o.name
	}
	o.name, o.rec, o.backlog, o.followed, o.linked = c.name, c.rec, true, true, true
}

// takeName renames a server that makes a replication backlog or frees it.
func (n *naming) takeName(s *redisServer, backlog bool) {
	n.renames--
	s.name, s.former, s.backlog = n.fresh(), 0, backlog
}

// lock is a client that locks the key. It takes it from a holder that is dead.
func (m *Naming) lock(n *naming) (bad string) {
	m.on(n, func(now fallback.Moment, p *fallback.Partition) {
		q := fallback.LockRequest{Key: key, Me: fallback.Identity{Session: number(n.holder + 1)}, Block: 1}
		if n.lease == 0 {
			q.Evict = p.Rows[key].Identity
		}
		a := p.Lock(now, q, nil)
		if a.Verdict != fallback.Granted {
			return
		}
		t := makeToken(uint16(a.Token.Epoch()), uint16(a.Token.Seq()))
		if n.lease > 0 {
			bad = m.violated(I1, "the key is granted while another has it")
		}
		if t <= n.last && bad == "" {
			bad = m.violated(I2, "token "+t.String()+" after "+n.last.String())
		}
		n.holder++
		n.last, n.lease = max(n.last, t), m.T
	})
	return bad
}

func (m *Naming) violated(i Invariant, what string) string {
	if m.Check != 0 && m.Check&i == 0 {
		return ""
	}
	return i.String() + ": " + what
}
