package coord

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// doubts are requests of ours that may still be executed: a call timed out, and its request may be
// anywhere. If it arrives after everything else of that request is over, it makes a row that this
// process does not know of. A process that wants the key would find out (rule 13); but perhaps none
// wants it any more, so this process looks after itself.
type doubts struct {
	mu   mutex[leafRank] // protects list
	list []doubt         // in the order of time
}

type doubt struct {
	p    *partition
	key  string
	id   fallback.Identity
	when time.Time // to look
}

func (x *doubts) add(d doubt) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.list = append(x.list, d)
}

// due takes the doubts that are due by now.
func (x *doubts) due(now time.Time) []doubt {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := 0
	for n < len(x.list) && !now.Before(x.list[n].when) {
		n++
	}
	list := x.list[:n:n]
	if x.list = x.list[n:]; len(x.list) == 0 {
		x.list = nil
	}
	return list
}

// all takes every doubt.
func (x *doubts) all() []doubt {
	x.mu.Lock()
	defer x.mu.Unlock()
	list := x.list
	x.list = nil
	return list
}

// clearDoubts releases what this process has not got and is not about to get.
func (c *Coordinator) clearDoubts() {
	now := c.now()
	for _, d := range c.debts.doubts.due(now) {
		if d.p.has(d.key, d.id) {
			d.when = now.Add(c.opts.SessionTTL)
			c.debts.doubts.add(d)
			continue
		}
		c.debts.releases.add(d.p.ReleaseOf(d.key, d.id))
	}
}

// has reports whether the request is a hold of this process, or may still become one.
func (p *partition) has(key string, id fallback.Identity) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Has(key, id)
}
