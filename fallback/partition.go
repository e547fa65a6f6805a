package fallback

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/guard"
)

// A Moment is the arbiter's knowledge when it executes an operation: the only way in which time and
// the outside world reach the transitions.
type Moment struct {
	Now    int64  // the server's clock, Unix milliseconds
	Server string // name of the server; changes whenever its process or its role may have changed. Never empty
	Grace  int64  // Q in milliseconds

	// A server may also change its name for no such reason. Then Process stays, and Successor is
	// false.
	Process   string // the server's process; empty: not known
	Successor bool   // the server went on with the data of another one when it took its name, or may have
}

// renamed reports whether the server is the one of that process still, under another name.
func (m Moment) renamed(process string) bool {
	return m.Process != "" && m.Process == process && !m.Successor
}

// A Partition is the record of one partition with its rows. They are lost or kept as one. The zero
// Partition is one that the server has lost. Its methods are the transitions of the protocol; they
// are deterministic, and an arbiter runs each of them atomically. The messages that a transition
// causes are handed to send, which may be nil.
type Partition struct {
	Owner    string
	Epoch    uint32
	Seq      uint32
	From     uint32              // the epoch that the owner's Acquire expected, to know its retry
	Revoked  uint32              // the epoch of the owner that was asked to demote
	Server   string              // name of the server that wrote this
	Process  string              // and its process
	GraceEnd int64               // by the server's clock, Unix milliseconds; 0: not in Grace
	Changed  int64               // the GraceEnd of a Grace that began because the server is another one; after an early end: for advance
	Rows     map[string]Row      // by name, which for most is the key
	Names    map[string][]string // for each key: the modes and holders of the names in Rows that are no keys
	Queues   map[string][]Waiter // by key
}

// A Waiter is a request in a key's queue. For waking only, never for safety.
type Waiter struct {
	Identity
	Spec     string // mode and holder of the hold that it waits for, "" for an exclusive one
	Promised int64  // 0, or: the key is free and kept for this waiter until then
}

func (w Waiter) is(x Waiter) bool { return w.Identity == x.Identity && w.Spec == x.Spec }

// Format creates the record of a new namespace, if there is none, in Grace for the milliseconds
// given.
func (p *Partition) Format(m Moment, grace int64) {
	if p.Server == "" {
		*p = Partition{Server: m.Server, Process: m.Process, GraceEnd: m.Now + grace}
	}
	p.enter(m)
}

// enter comes before everything else: it notices a server that is not the one that wrote the
// record, and the end of Grace. A server that has only changed its name gives a partition without
// an owner its next epoch, as the end of Grace does.
func (p *Partition) enter(m Moment) {
	if !guard.Grace {
		m.Grace = 0
	}
	switch {
	case p.Server == "": // lost: in a formatted namespace every record exists
		*p = Partition{Server: m.Server, Process: m.Process, GraceEnd: m.Now + m.Grace, Changed: m.Now + m.Grace}
	case p.Server != m.Server:
		switch {
		case !m.renamed(p.Process):
			p.GraceEnd = m.Now + m.Grace
			p.Changed = p.GraceEnd
		case p.GraceEnd == 0 && p.Owner == "":
			p.advance(m, "")
		}
		p.Server, p.Process = m.Server, m.Process
	}
	// A clock that stepped back must not prolong Grace for ever.
	if p.GraceEnd > m.Now+m.Grace {
		p.GraceEnd, p.Changed = m.Now+m.Grace, 0
	}
	if p.GraceEnd != 0 && m.Now >= p.GraceEnd {
		p.endGrace(m)
	}
}

func (p *Partition) endGrace(m Moment) {
	p.GraceEnd, p.Changed = 0, 0
	if p.Owner == "" {
		p.advance(m, "")
	}
}

// Refuses returns an error if no epoch can be made of the server's clock, or none is left. An
// arbiter asks before each operation: an epoch far ahead would stay so for ever. The error matches
// [ErrRefused].
func (p *Partition) Refuses(m Moment) error {
	clock := m.Now/1000 - epochZero
	switch {
	case p.Epoch >= MaxEpoch:
		return fmt.Errorf("%w: %s: epoch %d is the last one", ErrRefused, EpochSetting, p.Epoch)
	case clock > MaxEpoch || p.Epoch > 0 && clock > int64(p.Epoch)+maxAhead:
		return fmt.Errorf("%w: %s: it says %s, the last epoch is of %s", ErrRefused, ClockSetting,
			date(clock), date(int64(p.Epoch)))
	}
	return nil
}

// The remedies in the errors of Refuses.
const (
	ClockSetting = "the server's clock is years ahead of the record: set it, or delete the namespace's keys if it is right"
	EpochSetting = "a partition has no epochs left: delete the namespace's keys while no process uses it"
)

// date is the day of an epoch, by the clock.
func date(epoch int64) string { return time.Unix(epoch+epochZero, 0).UTC().Format(time.DateOnly) }

// advance is the step of the epoch that every transition takes. The clock in it keeps tokens rising
// after the record was lost (I2, I6). After a Grace that ended early it is ahead of the clock
// (EndGrace): epochs that the deposed server gave out may be above the clock.
func (p *Partition) advance(m Moment, owner string) {
	least := m.Now
	if guard.Floor {
		least = max(least, p.Changed)
	}
	p.Epoch = uint32(min(max(int64(p.Epoch)+1, least/1000-epochZero), MaxEpoch))
	p.Seq, p.Owner, p.From, p.Changed = 0, owner, 0, 0
}

func (p *Partition) record(m Moment) Record {
	r := Record{Owner: p.Owner, Epoch: p.Epoch, Revoked: p.Owner != "" && p.Revoked == p.Epoch}
	if p.GraceEnd != 0 {
		r.Grace = time.Duration(p.GraceEnd-m.Now) * time.Millisecond
	}
	return r
}

// Load is [PartitionStore.Load].
func (p *Partition) Load(m Moment) Record {
	p.enter(m)
	return p.record(m)
}

// Acquire is [PartitionStore.Acquire].
func (p *Partition) Acquire(m Moment, me string, x Expect) Acquisition {
	p.enter(m)
	if p.GraceEnd != 0 {
		return Acquisition{Verdict: InGrace, Record: p.record(m)}
	}
	again := p.Owner == me && p.From == x.Epoch
	if !again {
		free := p.Owner == "" || p.Owner == x.Owner && x.OwnerDead
		if guard.Epoch && p.Epoch != x.Epoch || !free {
			return Acquisition{Verdict: Conflict, Record: p.record(m)}
		}
		p.advance(m, me)
		p.From = x.Epoch
	}
	return Acquisition{Verdict: Granted, Record: p.record(m), Rows: maps.Clone(p.Rows)}
}

// Demote is [PartitionStore.Demote].
func (p *Partition) Demote(m Moment, me string, epoch uint32, holds map[string]Row) Demotion {
	d := p.demote(m, me, epoch)
	if d.Verdict == Granted {
		p.replace(maps.Clone(holds))
	}
	return d
}

// DemoteUnserved is [PartitionStore.DemoteUnserved].
func (p *Partition) DemoteUnserved(m Moment, me string, epoch uint32) Demotion {
	return p.demote(m, me, epoch)
}

func (p *Partition) demote(m Moment, me string, epoch uint32) Demotion {
	p.enter(m)
	v := Granted
	switch {
	case p.GraceEnd != 0:
		v = InGrace
	case p.Owner != me || guard.Epoch && p.Epoch != epoch:
		v = Stale
	default:
		p.advance(m, "")
	}
	return Demotion{Verdict: v, Record: p.record(m)}
}

// Revoke is [PartitionStore.Revoke] of the partition with the number given.
func (p *Partition) Revoke(m Moment, number, epoch uint32, send Sender) {
	p.enter(m)
	if p.Owner != "" && p.Epoch == epoch {
		p.Revoked = epoch
		send.to(p.Owner, Message{Kind: Revoked, Partition: number, Epoch: epoch})
	}
}

// Lock is [HoldStore.Lock].
func (p *Partition) Lock(m Moment, r LockRequest, send Sender) LockAnswer {
	p.enter(m)
	key, spec := split(r.Key)
	me := Waiter{Identity: r.Me, Spec: spec}
	row, held := p.Rows[r.Key]
	switch {
	case p.GraceEnd != 0:
		return LockAnswer{Verdict: InGrace, Record: p.record(m)}
	case p.Owner != "":
		p.dequeue(key, me) // it goes to the owner
		return LockAnswer{Verdict: Owned, Record: p.record(m)}
	case held && row.Identity == r.Me:
		p.dequeue(key, me)
		return LockAnswer{Verdict: Granted, Record: p.record(m), Token: row.Token, Contended: p.contended(key, spec)}
	}
	p.evict(key, r.Evict)
	p.forget(key, r.Gone)
	way := p.inTheWay(r.Key, r.Me.Session)
	if len(way) > 0 {
		return p.held(m, r, way, send)
	}
	first := p.before(key, spec, r.Me.Session) // it comes before those that wait
	var next Waiter
	var ok bool
	if !first {
		next, ok = p.promise(m, key, me, send)
	}
	switch {
	case first:
	case ok && next.is(me):
	case ok:
		p.enqueue(r)
		left := time.Duration(next.Promised-m.Now) * time.Millisecond
		return LockAnswer{Verdict: Promised, Record: p.record(m), Holder: Row{Identity: next.Identity}, Retry: left}
	case len(p.Queues[key]) > 0: // the first waiter does not fit, and this one comes after it
		next = p.Queues[key][0]
		a := p.held(m, r, p.inTheWay(named(key, next.Spec), next.Session), send)
		send.to(next.Session, Message{Kind: Ask, Key: named(key, next.Spec), Request: next.Request}) // it may have gone, and its request come again
		a.Behind, a.Ahead = true, Release{Partition: r.Partition, Key: named(key, next.Spec), Identity: next.Identity}
		return a
	}
	p.dequeue(key, me)
	if p.Seq > math.MaxUint32-r.Block {
		p.advance(m, "")
	}
	row = Row{Identity: r.Me, Token: MakeToken(p.Epoch, p.Seq+1)}
	p.put(r.Key, row)
	p.Seq += r.Block
	if spec != "" {
		p.promise(m, key, Waiter{}, send) // the next one may fit as well
	}
	return LockAnswer{Verdict: Granted, Record: p.record(m), Token: row.Token, Contended: p.contended(key, spec)}
}

// evict removes a hold of the key: of any name, as it may be in the way of a request that comes
// before the one that evicts it.
func (p *Partition) evict(key string, hold Identity) {
	if hold == (Identity{}) {
		return
	}
	for _, spec := range append([]string{""}, p.Names[key]...) {
		if name := named(key, spec); p.Rows[name].Identity == hold {
			p.remove(name)
		}
	}
}

// forget removes a session's requests from the key's queue.
func (p *Partition) forget(key, session string) {
	if session != "" {
		p.unqueue(key, func(w Waiter) bool { return w.Session == session })
	}
}

// held is Lock where holds are in the way.
func (p *Partition) held(m Moment, r LockRequest, way []string, send Sender) LockAnswer {
	p.enqueue(r)
	for _, name := range way {
		send.to(p.Rows[name].Session, Message{Kind: Ask, Key: name, Request: p.Rows[name].Request})
	}
	return LockAnswer{Verdict: Held, Record: p.record(m), Holder: p.Rows[way[0]], Size: otherSize(r.Key, way)}
}

// contended reports whether a waiter has to wait for a hold of the mode. Shared ones do not wait
// for shared ones.
func (p *Partition) contended(key, spec string) bool {
	reads := modeOf(spec).Reads()
	return slices.ContainsFunc(p.Queues[key], func(w Waiter) bool { return !reads || !modeOf(w.Spec).Reads() })
}

// promise finds the waiter that a key is for, wakes it unless it is me, and drops those that were
// woken and did not come. There is none if the first one does not fit beside the present holds.
func (p *Partition) promise(m Moment, key string, me Waiter, send Sender) (Waiter, bool) {
	for q := p.Queues[key]; len(q) > 0; q = p.Queues[key] {
		w := &q[0]
		w.Promised = min(w.Promised, m.Now+PromiseFor.Milliseconds()) // the clock stepped back
		switch {
		case w.is(me):
			return *w, true
		case w.Promised != 0 && m.Now >= w.Promised:
			p.dequeue(key, *w)
			continue
		case len(p.inTheWay(named(key, w.Spec), w.Session)) > 0:
			return Waiter{}, false
		case w.Promised == 0:
			w.Promised = m.Now + PromiseFor.Milliseconds()
			send.to(w.Session, Message{Kind: Wake, Key: named(key, w.Spec), Request: w.Request})
		}
		return *w, true
	}
	return Waiter{}, false
}

func (p *Partition) enqueue(r LockRequest) {
	if !r.Wait {
		return
	}
	key, spec := split(r.Key)
	me, q := Waiter{Identity: r.Me, Spec: spec}, p.Queues[key]
	if i := slices.IndexFunc(q, me.is); i >= 0 {
		if q[i].Promised == 0 {
			return // keeps its place
		}
		p.dequeue(key, me)
	}
	if p.Queues == nil {
		p.Queues = make(map[string][]Waiter)
	}
	p.Queues[key] = append(p.Queues[key], me)
}

func (p *Partition) dequeue(key string, w Waiter) { p.unqueue(key, w.is) }

func (p *Partition) unqueue(key string, which func(Waiter) bool) {
	if len(p.Queues) == 0 {
		return
	}
	q := slices.DeleteFunc(p.Queues[key], which)
	if len(q) == 0 {
		delete(p.Queues, key)
		return
	}
	p.Queues[key] = q
}

// Unlock is [HoldStore.Unlock] of one release. It reports whether a row was removed.
func (p *Partition) Unlock(m Moment, name string, id Identity, send Sender) bool {
	p.enter(m)
	row, held := p.Rows[name]
	removed := held && (row.Identity == id || !guard.Identity)
	if removed {
		p.remove(name)
	}
	key, spec := split(name)
	p.dequeue(key, Waiter{Identity: id, Spec: spec})
	if removed && p.Owner != "" {
		send.to(p.Owner, Message{Kind: Freed, Key: name, Session: id.Session, Request: id.Request})
	}
	if (removed || !held) && p.GraceEnd == 0 && p.Owner == "" {
		p.promise(m, key, Waiter{}, send)
	}
	return removed
}

// Adopt writes the row of a hold that the owner of an epoch answers for: if the record is still at
// that epoch and the present row's token is lower. In Grace it reclaims the row, and the epoch.
// Verdicts: Granted, Lost.
func (p *Partition) Adopt(m Moment, key string, row Row, owned uint32) Verdict {
	p.enter(m)
	if p.GraceEnd != 0 {
		return p.reclaim(m, key, row, owned)
	}
	now := p.Rows[key]
	switch {
	case now == row:
	case (p.Epoch == owned || !guard.Epoch) && now.Token < row.Token:
		p.put(key, row)
	default:
		return Lost
	}
	return Granted
}

// ReclaimRow restores, in Grace, a row that the new server has lost or has older. Verdicts:
// Granted, Lost.
func (p *Partition) ReclaimRow(m Moment, key string, row Row) Verdict {
	return p.reclaim(m, key, row, 0)
}

// Restore is [HoldStore.Restore] of one partition.
func (p *Partition) Restore(m Moment, holds []Claim) Restored {
	p.enter(m)
	verdicts := make([]Verdict, len(holds))
	for i, h := range holds {
		if h.Owned != 0 {
			verdicts[i] = p.Adopt(m, h.Key, h.Row, h.Owned)
		} else {
			verdicts[i] = p.ReclaimRow(m, h.Key, h.Row)
		}
	}
	return Restored{Verdicts: verdicts, Grace: p.record(m).Grace}
}

// reclaim is ReclaimRow of a hold that existed at the row's epoch, and at another one if that is
// not 0.
func (p *Partition) reclaim(m Moment, key string, row Row, at uint32) Verdict {
	p.enter(m)
	now := p.Rows[key]
	switch {
	case now == row:
		return Granted
	case p.GraceEnd == 0 || cmp.Compare(now.Token, row.Token) > 0:
		return Lost
	}
	p.put(key, row)
	if e := max(row.Token.Epoch(), at); e > p.Epoch {
		// A later epoch existed: the owner that this record names is history.
		p.Epoch, p.Owner, p.Seq, p.From = e, "", 0, 0
	}
	return Granted
}

// ReclaimOwner is [HoldStore.ReclaimOwners] of one partition.
func (p *Partition) ReclaimOwner(m Moment, me string, epoch uint32) Reclaimed {
	p.enter(m)
	r := Reclaimed{Verdict: Granted, Grace: p.record(m).Grace}
	switch {
	case p.Owner == me && p.Epoch == epoch:
	case p.GraceEnd == 0 || p.Epoch > epoch:
		r.Verdict = Lost
	default:
		p.Owner, p.Epoch, p.Seq, p.From = me, epoch, 0, 0
	}
	return r
}

// Verify is [HoldStore.Verify] of one partition.
func (p *Partition) Verify(m Moment, r Read) State {
	p.enter(m)
	s := State{Record: p.record(m), Rows: make([]Row, len(r.Keys)), Wanted: make([]bool, r.Busy)}
	for i, k := range r.Keys {
		s.Rows[i] = p.Rows[k]
		if i < r.Busy {
			key, spec := split(k)
			s.Wanted[i] = p.contended(key, spec)
		}
	}
	return s
}

// Clone returns a copy that shares nothing.
func (p *Partition) Clone() *Partition {
	c := *p
	c.Rows = maps.Clone(p.Rows)
	c.Names = maps.Clone(p.Names)
	for k, specs := range p.Names {
		c.Names[k] = slices.Clone(specs)
	}
	c.Queues = make(map[string][]Waiter, len(p.Queues))
	for k, q := range p.Queues {
		c.Queues[k] = slices.Clone(q)
	}
	return &c
}
