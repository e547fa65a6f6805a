package lease

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
)

// A group is what the owner of a partition knows of a key that is wanted in several modes (see fallback.Mode). Each name of the key
// is a Key of its own, with at most one hold, as if it were another key: all that happens to holds is the same. Only what grants one
// looks at the others: a hold is granted if those that are held let it in, and in the order in which the requests came, over all names.
// The nodes that have the holds know of no group. A group belongs to the ownership, and ends with it.
type group struct {
	keys     []*Key // the exclusive one first. It is in the group for as long as any other is
	requests uint64 // so far
	granting bool
}

// attach makes a key of a name that is no key one of its group.
func (p *Partition) attach(k *Key) {
	name, _ := fallback.Split(k.name)
	first := p.Key(name)
	if first.others == nil {
		first.others = p.newGrants()
	}
	g := first.others.group
	if g == nil {
		g = &group{keys: []*Key{first}}
		first.others.group = g
	}
	if k.others == nil {
		k.others = p.newGrants()
	}
	k.others.group = g
	g.keys = append(g.keys, k)
}

// attachAll makes the groups of an ownership that begins.
func (p *Partition) attachAll() {
	var names []*Key
	for name, k := range p.keys {
		if fallback.IsName(name) {
			names = append(names, k)
		}
	}
	for _, k := range names {
		p.attach(k)
	}
}

// newGrants returns grants for a key that has none.
func (p *Partition) newGrants() *grants {
	g := p.spare
	if g == nil {
		g = &grants{}
	}
	p.spare = nil
	return g
}

// group returns the key's group, nil if there is none.
func (k *Key) group() *group {
	if k.others == nil {
		return nil
	}
	return k.others.group
}

// queue queues a node for a key.
func (k *Key) queue(c claimant) {
	if g := k.group(); g != nil {
		g.requests++
		c.order = g.requests
	}
	k.others.queue = append(k.others.queue, c)
}

// next returns the key of the node that has waited longest, nil if none waits.
func (g *group) next() (first *Key) {
	for _, k := range g.keys {
		if q := k.others.queue; len(q) > 0 && (first == nil || q[0].order < first.others.queue[0].order) {
			first = k
		}
	}
	return first
}

// inTheWay returns the keys with the holds that a hold of k must not be granted beside.
func (g *group) inTheWay(k *Key) (way []*Key) {
	if !k.available() {
		way = append(way, k)
	}
	_, mine := fallback.Split(k.name)
	var others []*Key
	var modes []fallback.Mode
	for _, x := range g.keys {
		if x != k && !x.available() {
			_, m := fallback.Split(x.name)
			others, modes = append(others, x), append(modes, m)
		}
	}
	if mine.Beside(modes...) {
		return way
	}
	for i, m := range modes {
		if mine.Kind == fallback.Permits || !mine.Beside(m) {
			way = append(way, others[i])
		}
	}
	return way
}

// grantGroup gives the key's holds to the nodes that have waited longest, as long as the first one's fits. What is in its way is
// recalled: so no node waits for those that came after it.
func (p *Partition) grantGroup(g *group, now time.Time, fx *Effects) {
	if g.granting {
		return // a hold was given back meanwhile, as it was recalled
	}
	g.granting = true
	for p.serves(now) { // if it does not, letGo follows
		k := g.next()
		if k == nil {
			break
		}
		if p.clear(g, k, now, fx); len(g.inTheWay(k)) > 0 {
			break
		}
		p.grantFirst(k, now, fx)
	}
	g.granting = false
	for _, k := range slices.Backward(slices.Clone(g.keys)) {
		p.settle(k)
	}
}

// clear recalls what is in the way of a hold of k.
func (p *Partition) clear(g *group, k *Key, now time.Time, fx *Effects) {
	was := g.granting
	g.granting = true
	for _, x := range g.inTheWay(k) {
		p.recall(x, now, fx)
	}
	g.granting = was
}

// settle forgets a key of a group that no node has or wants.
func (p *Partition) settle(k *Key) {
	g := k.group()
	if g == nil || g.granting {
		return
	}
	unused := k.available() && k.q.Waiting() == 0 && len(k.others.queue) == 0 && k.contender == nil && k.request.link == nil
	if first := g.keys[0]; k != first {
		if !unused {
			return
		}
		g.keys = slices.DeleteFunc(g.keys, func(x *Key) bool { return x == k })
		k.others.group = nil
		p.noGrants(k)
		p.tidy(k)
		k = first
	}
	if len(g.keys) > 1 {
		return
	}
	k.others.group = nil
	if k.available() && len(k.others.queue) == 0 {
		p.noGrants(k)
		p.tidy(k)
	}
}

// refuses reports whether a caller or node that only tries is to be sent away, and makes way for the next one. An own hold that
// lingers is no reason.
func (p *Partition) refuses(k *Key, now time.Time, fx *Effects) bool {
	g := k.group()
	for _, x := range g.inTheWay(k) {
		if x.q.State() == handoff.Lingering {
			g.granting = true
			p.recallHere(x, now, fx)
			g.granting = false
		}
	}
	if g.next() == nil && len(g.inTheWay(k)) == 0 {
		return false
	}
	p.clear(g, k, now, fx)
	p.grantGroup(g, now, fx)
	return true
}
