package coord

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
)

// check is what this process believes to hold in a partition at some moment.
type check struct {
	p     *partition
	keys  []string
	rows  []fallback.Row
	own   *ownership     // a copy; nil: this node does not serve it
	busy  int            // the first ones have been in use since they were last verified
	rest  bool           // there is another check of the partition, with more of its keys
	known fallback.Token // what was seen before the arbiter is asked
}

// check lists the holds of a session.
func (p *partition) check(s *session) check {
	k := check{p: p}
	p.mu.Lock()
	defer p.mu.Unlock()
	k.known = p.seen
	if p.own != nil && p.own.session == s {
		o := *p.own
		k.own = &o
	}
	if p.holds == 0 {
		return k
	}
	now, when := p.c.now(), p.c.adoption()
	for key, e := range p.entries {
		if e.q.State() == handoff.Idle || e.hold.session != s || e.hold.confirmed.IsZero() || p.settleDown(&e.hold, when, now) {
			continue
		}
		k.keys, k.rows = append(k.keys, key), append(k.rows, e.hold.row)
		if e.used {
			// A process that gets no messages has to find out in this way that somebody else waits.
			last := len(k.keys) - 1
			k.keys[k.busy], k.keys[last] = k.keys[last], k.keys[k.busy]
			k.rows[k.busy], k.rows[last] = k.rows[last], k.rows[k.busy]
			k.busy++
			e.used = false
		}
	}
	return k
}

// compare confirms the holds that the arbiter knows, as of the moment when it was asked. Those that it does not know are
// to be reclaimed in Grace, and lost otherwise.
func (p *partition) compare(k check, s fallback.State, sent time.Time) claims {
	var a after
	missing := claims{p: p}
	p.mu.Lock()
	p.sawEpoch(s.Record)
	if k.own != nil && p.own != nil && p.own.epoch == k.own.epoch {
		switch r := s.Record; {
		case r.Owner == k.own.session.id && r.Epoch == k.own.epoch:
			p.own.confirmed = sent
			if r.Revoked {
				defer p.revoked(r.Epoch)
			}
		case r.Grace > 0:
			missing.own = k.own
		default:
			p.letGo(p.c.now(), &a)
		}
	}
	for i, key := range k.keys {
		e := p.holding(key, k.rows[i])
		switch {
		case e == nil || e.hold.confirmed.IsZero(): // given back meanwhile, or it rests on its owner
		case s.Rows[i] == k.rows[i]:
			e.hold.confirmed = sent
			if i < k.busy && s.Wanted[i] && e.q.Recall(p.c.now()) == handoff.GiveBack {
				p.giveBack(e, &a)
			}
		case s.Record.Grace > 0:
			missing.holds = append(missing.holds, e.hold.claim(key))
		default:
			p.lose(e, Superseded, &a)
		}
	}
	p.offer(k, s.Record, &a)
	p.mu.Unlock()
	a.do(p.c)
	if s.Record.Grace > 0 {
		p.c.sessions.sweep(p.c.graceBegan(sent, s.Record.Grace))
	}
	return missing
}

// holding returns the key's entry if it has that very hold.
func (p *partition) holding(key string, row fallback.Row) *entry {
	if e := p.entries[key]; e != nil && e.q.State() != handoff.Idle && e.hold.row == row {
		return e
	}
	return nil
}
