package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/internal/guard"
)

// Adoption has the times for the adoption of holds, and for their return to their owners. An
// arbiter that has been away is not to be met by everything that could be asked of it: by then most
// owners have renewed their announcements.
type Adoption struct {
	Silent bool          // the arbiter does not answer
	Lead   time.Duration // how long before its deadline a hold is adopted while its owner is there
	Last   time.Duration // the same, of every hold, while the arbiter does not answer
	Back   time.Duration // how much longer than Lead an owner must answer for a hold to be given back to it
}

// Due reports whether a hold is to be adopted if its owner answers for it for so long. gone: not
// for any longer.
func (x Adoption) Due(gone bool, left time.Duration) bool {
	if x.Silent {
		return left < x.Last
	}
	return gone || left < x.Lead
}

// At returns how long before its deadline a hold is adopted while its owner is there.
func (x Adoption) At() time.Duration {
	if x.Silent {
		return x.Last
	}
	return x.Lead
}

// Trusts reports whether the row of a hold need not be looked after, because its owner answers for
// it.
func (x Adoption) Trusts(gone bool, left time.Duration) bool { return !gone && left > x.Lead+x.Back }

// Claims is the part of a partition's state that the arbiter may not know: its owner, after a
// failover; and holds without a row, or with rows that the server has lost.
type Claims struct {
	Own   Tenure // zero: not this node
	Holds []fallback.Claim
}

// Orphans lists the holds that need a row now, as their owners answer for them no longer, or not
// for long. It counts the holds that rest on an owner's word, with or without a row, and returns
// when the next one may need one.
func (p *Partition) Orphans(when Adoption, now time.Time) (holds []fallback.Claim, resting int, next time.Duration) {
	next = p.cfg.RenewEvery
	if p.basis.remote == 0 || p.phase == Demoting {
		return nil, p.basis.remote, next
	}
	if until, ok := p.until(now); ok && !when.Due(false, until.Sub(now)) {
		return nil, p.basis.remote, min(next, until.Sub(now)-when.At())
	}
	for key, k := range p.table.keys {
		h := k.hold
		if k.q.State() == handoff.Idle || !h.remote() || !h.confirmed.IsZero() {
			continue
		}
		gone, left := h.ownerGone(), h.announcedUntil().Sub(now)
		if when.Due(gone, left) {
			if gone {
				p.basis.common.known = false
				h.freeze()
			}
			holds = append(holds, h.asClaim(key))
			if wait := p.basis.settled.Sub(now); wait > 0 {
				next = min(next, wait)
			}
		} else {
			next = min(next, left-when.At())
		}
	}
	return holds, p.basis.remote, next
}

// RestsOn counts the holds that rest on a node's word, and lists claims for their rows. The node's
// process has ended (G10), and its streams have been cut. A partition that is being given back has
// no claims: its owner writes the rows.
func (p *Partition) RestsOn(node string) (claims []fallback.Claim, holds int) {
	if p.basis.remote == 0 {
		return nil, 0
	}
	for key, k := range p.table.keys {
		h := k.hold
		if k.q.State() == handoff.Idle || !h.remote() || !h.confirmed.IsZero() || h.from == nil || h.from.Node() != node {
			continue
		}
		if holds++; p.phase == Demoting {
			continue
		}
		p.basis.common.known = false
		h.freeze()
		claims = append(claims, h.asClaim(key))
	}
	return claims, holds
}

// ownerGone reports whether no owner extends the deadline of the hold.
func (h *hold) ownerGone() bool { return h.source != SourceOwner || h.from.Down() }

// asClaim returns the claim that asks the arbiter for the row of the hold.
func (h *hold) asClaim(key string) fallback.Claim {
	return fallback.Claim{Key: key, Row: h.row, Owned: h.epoch}
}

// Reclaimed: the arbiter, asked at the time sent, has given the record back to the owner of a
// tenure, or not.
func (p *Partition) Reclaimed(own Tenure, granted bool, sent, now time.Time, fx *Effects) {
	switch {
	case p.own == nil || p.own.epoch != own.Epoch:
	case granted:
		p.confirm(sent, now, fx)
	default:
		p.letGo(now, fx)
	}
}

// confirm notes that the arbiter, asked at the time sent, knows this node as the owner, and reports
// whether it goes on. An answer that comes when the slot has passed does not count (rule 1): events
// have found that it did not serve, and the keys that they have left would not be granted. After a
// step of the wall clock the ownership is left as it is, as by Lapsed.
func (p *Partition) confirm(sent, now time.Time, fx *Effects) bool {
	if p.own.stepped(now) {
		return false
	}
	if guard.Lapse && Past(p.own.confirmed.Add(p.cfg.Lease), now) {
		p.letGo(now, fx)
		return false
	}
	p.own.confirmed = Later(p.own.confirmed, sent)
	return true
}

// Restored: the arbiter, asked at the time sent, has told which holds have rows now. The source of
// one that was adopted stays: the later one of its row's and its owner's deadline counts
// (deadlines).
//
// A row confirms no hold that rests on an owner for as long as a deposed server may answer yet
// (settles): that one lacks the row, and may give a dead owner's partition away. Its owner's
// deadline counts until then, and it is adopted once more.
func (p *Partition) Restored(holds []fallback.Claim, verdicts []fallback.Verdict, settles time.Duration, sent, now time.Time, fx *Effects) {
	for i, h := range holds {
		k, there := p.holding(h.Key, h.Row), verdicts[i] == fallback.Granted
		switch {
		case k == nil && there:
			// Given back meanwhile: the release may have come before the row was back.
			fx.Releases = append(fx.Releases, p.ReleaseOf(h.Key, h.Row.Identity))
		case k == nil || k.hold.source == SourceHome:
		case there && settles > 0 && k.hold.confirmed.IsZero() && guard.RowLate:
			k.hold.rowed, p.basis.settled = true, now.Add(settles)
		case there:
			k.hold.confirmed = Later(k.hold.confirmed, sent)
			p.basis.oldest = Earlier(p.basis.oldest, sent)
		case k.hold.epoch != h.Owned: // its owner has answered for it since
		default:
			p.lose(k, Superseded, now, fx)
		}
	}
}

// NotRestored notes that a call was not answered: holds may get their rows yet, also when they have
// been given back.
func (p *Partition) NotRestored(holds []fallback.Claim, now time.Time, fx *Effects) {
	for _, h := range holds {
		if k := p.holding(h.Key, h.Row); k != nil {
			k.hold.callPending = true // giveBack is to see to it
			continue
		}
		out := p.order()
		out.Doubts = append(out.Doubts, Doubt{h.Key, h.Row.Identity, now.Add(p.cfg.SessionTTL)})
	}
}
