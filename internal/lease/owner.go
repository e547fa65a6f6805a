package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/internal/guard"
)

// lastSeq begins the end of an epoch's tokens: the partition is demoted and taken again. From noSeq
// on nothing is granted any more, nor is a key's next turn.
const lastSeq, noSeq = 1 << 31, 1<<32 - 1<<16

// serves reports whether this node may grant the partition's keys now (rule 1), as a rule by two
// comparisons.
func (p *Partition) serves(now time.Time) bool {
	o := p.own
	if o == nil || o.seq >= noSeq {
		return false
	}
	return now.Before(o.goodUntil) && now.UnixNano() < o.goodWall || o.extend(p, now)
}

// extend reports whether the ownership still counts, and notes until when. That only moves on, as
// long as the partition is owned.
func (o *ownership) extend(p *Partition, now time.Time) bool {
	a, b := o.session.Deadline(), o.confirmed.Add(p.cfg.Lease)
	if guard.Lapse && (Past(a, now) || Past(b, now)) {
		return false
	}
	o.goodUntil, o.goodWall = a, min(a.UnixNano(), b.UnixNano()) // the earlier by each clock
	if b.Before(a) {
		o.goodUntil = b
	}
	o.apart = o.goodWall != o.goodUntil.UnixNano()
	return true
}

// stepped reports whether a step of the wall clock has ended the session, or the session is over.
// Then the ownership is left as it is, for FreezeStepped or LoseAll.
func (o *ownership) stepped(now time.Time) bool {
	d := o.session.Deadline()
	return d.IsZero() || Stepped(d, now)
}

// Warm reports whether Again may grant the key: it is this node's own, was used a moment ago, and
// no other node wants it. k may be nil.
func (p *Partition) Warm(k *Key) bool {
	return k != nil && k.hold.source == SourceOwn && k.others == nil && k.q.State() == handoff.Lingering && p.closing.ending == Open && p.own != nil
}

// Quick reports whether the monotonic clock alone allows a grant. Reading both clocks is half the
// cost of a grant that closely follows another one. The wall clock is there for a machine that is
// suspended, during which the monotonic one stands still: it is read once per millisecond of the
// latter. So in the first millisecond after the machine goes on, a key may be granted as if it had
// never stopped. It may have been so in the last millisecond before, too.
func (p *Partition) Quick(at Moment) bool { return at < p.own.quickUntil && p.own.seq < noSeq }

// Good reports whether this node may grant the partition's keys now. After that Quick may grant
// more.
func (p *Partition) Good(now time.Time) bool {
	if !p.serves(now) {
		return false
	}
	p.own.quickUntil = min(p.cfg.At(now)+WallEvery, p.cfg.At(p.own.goodUntil))
	return true
}

// Again is Lock in the usual case of an owner, if Warm and one of Quick and Good have said so.
func (p *Partition) Again(k *Key, at Moment) (*Turn, uint64) {
	fence := uint64(p.token(1))
	k.q.Again(fence)
	return p.begin(k, fence, PathOwn, at), fence
}

// Fresh is Lock of a key that is not in use, if Vacant and one of Quick and Good have said so. The
// key must not be another name.
func (p *Partition) Fresh(name string, at Moment) (*Turn, uint64) {
	k := p.add(name)
	fence := uint64(p.token(1))
	k.q.Begin(fence)
	k.hold = &p.own.hold
	p.basis.holds++
	return p.begin(k, fence, PathOwn, at), fence
}

// Vacant reports whether Fresh may grant a key that is not in use.
func (p *Partition) Vacant() bool { return p.own != nil && p.closing.ending == Open }

// Calm reports whether no turn of the partition runs.
func (p *Partition) Calm() bool { return p.closing.turns == 0 }

// Sampled reports whether the wait that begins is one that is measured: one in 8.
func (p *Partition) Sampled() bool { return p.granted[PathOwn]%8 == 0 }

// BeginOwn grants a key that is free in this node's own partition.
func (p *Partition) BeginOwn(k *Key, now time.Time, begin Moment) (*Turn, uint64) {
	if k.others != nil || p.own == nil || !k.available() || !p.serves(now) || k.contender != nil || k.request.link != nil {
		return nil, 0
	}
	token := uint64(p.token(1))
	if !k.q.Begin(token) {
		return nil, 0
	}
	k.hold = &p.own.hold
	p.basis.holds++
	return p.begin(k, token, PathOwn, begin), token
}

// token returns the next token of the partition that this node owns, and reserves the n that begin
// with it.
func (p *Partition) token(n uint32) fallback.Token {
	o := p.own
	first := o.seq + 1
	o.seq += n
	return fallback.MakeToken(o.epoch, first)
}

// ownedUntil returns the deadline of the ownership.
func (p *Partition) ownedUntil() time.Time {
	d := p.slotEnds()
	if s := p.own.session.Deadline(); s.Before(d) {
		return s
	}
	return d
}

// slotEnds returns until when the ownership is good, if its session is.
func (p *Partition) slotEnds() time.Time { return p.own.confirmed.Add(p.cfg.Lease) }

// Confirmed returns the sending time of the call that has confirmed the ownership, zero if this
// node does not serve the partition.
func (p *Partition) Confirmed() time.Time {
	if p.own == nil {
		return time.Time{}
	}
	return p.own.confirmed
}

// Phase returns the partition's phase at this node.
func (p *Partition) Phase() Phase { return p.phase }
