package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/peer"
)

// A Snapshot is this process's belief about its holds in a partition at some moment.
type Snapshot struct {
	Keys    []string
	Rows    []fallback.Row
	Own     Tenure         // zero: this node does not serve it
	Busy    int            // the first ones have been in use since they were last verified
	Further bool           // it continues an earlier snapshot of the partition with further keys
	Known   fallback.Token // the highest token seen before the arbiter is asked
}

// A Look has the options of Snapshot.
type Look struct {
	All    bool // also holds that got a row a moment ago
	Silent bool // the arbiter delivers no messages: for each hold with a running turn it is asked whether another process waits
}

// Snapshot lists the holds of a session that rest on their rows; but for those that got one a
// moment ago, unless all are asked for.
func (p *Partition) Snapshot(s *Session, look Look, now time.Time) Snapshot {
	x := Snapshot{Known: p.tokens.seen}
	if p.own != nil && p.own.session == s {
		x.Own = Tenure{s, p.own.epoch}
	}
	if p.basis.holds == 0 || p.basis.oldest.IsZero() {
		return x // no hold rests on a row
	}
	when := p.cfg.View.Adoption()
	for key, k := range p.table.keys {
		if k.q.State() == handoff.Idle || k.hold.session != s || k.hold.confirmed.IsZero() {
			continue
		}
		if p.settleDown(k.hold, when, now) {
			p.retract(k)
			continue
		}
		if (!look.All || !guard.PassWhole) && k.hold.remote() && now.Sub(k.hold.confirmed) < p.cfg.RenewEvery/2 {
			continue // adopted a moment ago: the arbiter has more of these to write, before they lapse
		}
		x.Keys, x.Rows = append(x.Keys, key), append(x.Rows, k.hold.row)
		if k.used || look.Silent && k.q.State() == handoff.Turn && !k.q.Recalled() {
			// A process that gets no message has to find out in this way that another one waits.
			last := len(x.Keys) - 1
			x.Keys[x.Busy], x.Keys[last] = x.Keys[last], x.Keys[x.Busy]
			x.Rows[x.Busy], x.Rows[last] = x.Rows[last], x.Rows[x.Busy]
			x.Busy++
			k.used = false
		}
	}
	return x
}

// settleDown makes a hold that has a row rest on its owner again, if that answers for it for long
// enough (rule 17). It reports whether it does.
func (p *Partition) settleDown(h *hold, when Adoption, now time.Time) bool {
	if !h.remote() || !when.Trusts(h.ownerGone(), h.announcedUntil().Sub(now)) {
		return false
	}
	h.confirmed, h.rowed = time.Time{}, true
	return true
}

// Older reports whether an answer may be of a record with older data than this process had seen
// when it asked: it is of an earlier epoch, or lacks the row of a hold in force. The arbiter
// decides which of the two it is, as it knows the number.
func (p *Partition) Older(x Snapshot, s fallback.State) bool {
	if s.Record.Grace > 0 {
		return false
	}
	if s.Record.Epoch < x.Known.Epoch() {
		return true
	}
	for i, key := range x.Keys {
		if k := p.holding(key, x.Rows[i]); k != nil && s.Rows[i] != x.Rows[i] && !k.hold.confirmed.IsZero() {
			return true
		}
	}
	return false
}

// Compare confirms the ownership and the holds that the arbiter knows, as of the time sent, when it
// was asked. It returns the unknown ones to be reclaimed, if the arbiter is in Grace; otherwise
// those are lost. revoked is the epoch of this node's that another node wants to end, 0 for none.
func (p *Partition) Compare(x Snapshot, s fallback.State, sent, now time.Time, fx *Effects) (missing Claims, revoked uint32) {
	p.sawEpoch(s.Record)
	if x.Own.Epoch > 0 && p.own != nil && p.own.epoch == x.Own.Epoch {
		switch r := s.Record; {
		case r.Owner == x.Own.Session.ID && r.Epoch == x.Own.Epoch:
			if p.confirm(sent, now, fx) && r.Revoked {
				revoked = r.Epoch
			}
		case r.Grace > 0:
			missing.Own = x.Own
		default:
			p.letGo(now, fx)
		}
	}
	for i, key := range x.Keys {
		k := p.holding(key, x.Rows[i])
		switch {
		case k == nil || k.hold.confirmed.IsZero(): // given back meanwhile, or it rests on its owner
		case s.Rows[i] == x.Rows[i]:
			k.hold.confirmed = Later(k.hold.confirmed, sent)
			if i < x.Busy && s.Wanted[i] {
				p.recallHere(k, now, fx)
			}
		case s.Record.Grace > 0:
			missing.Holds = append(missing.Holds, k.hold.asClaim(key))
		default:
			p.lose(k, Superseded, now, fx)
		}
	}
	p.offer(x, s.Record)
	return missing, revoked
}

// offer asks the owner of the partition to answer for holds that rest on their rows (rule 17).
func (p *Partition) offer(x Snapshot, r fallback.Record) {
	if !p.cfg.Clustered || r.Owner == "" || r.Grace > 0 || p.own != nil {
		return
	}
	l := p.cfg.View.LinkTo(r.Owner)
	if l == nil || l.Down() {
		return
	}
	for i, key := range x.Keys {
		k := p.holding(key, x.Rows[i])
		if k == nil || k.hold.confirmed.IsZero() || !k.hold.ownerGone() && k.hold.from == l {
			continue
		}
		if p.cfg.Offers.Add(-1) < 0 {
			return
		}
		p.send(l, peer.Resume, key, x.Rows[i].Identity).Token = uint64(x.Rows[i].Token)
	}
}
