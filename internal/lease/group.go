package lease

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/peer"
)

// A group is an owner's knowledge of a key that is wanted in several modes. Each name of the key is
// a Key of its own, with at most one hold, as if it were another key: all that happens to holds is
// the same. Only the granting of one looks at the others: a hold is granted if those that are held
// let it in, and in the order in which the requests came, over all names. The nodes that have the
// holds know of no group. A group belongs to the ownership, and ends with it.
type group struct {
	keys     []*Key         // the exclusive one first. It is in the group for as long as any other is
	blocks   map[string]int // by block of permits: how many of the keys are of it
	shrinks  int            // by how many those of one block are more than one
	requests uint64         // so far
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
		for i := range first.others.queue {
			first.others.queue[i].order = 0 // of a group that there was before
		}
	}
	if k.others == nil {
		k.others = p.newGrants()
	}
	k.others.group = g
	_, k.others.mode = fallback.Split(k.name)
	g.keys = append(g.keys, k)
	if b := k.others.mode.Block; b != "" {
		if g.blocks == nil {
			g.blocks = make(map[string]int)
		}
		if g.blocks[b]++; g.blocks[b] > 1 {
			g.shrinks++
		}
	}
}

// detach takes a key out of its group, but for the first one.
func (g *group) detach(k *Key) {
	g.keys = slices.DeleteFunc(g.keys, func(x *Key) bool { return x == k })
	if b := k.others.mode.Block; b != "" {
		if g.blocks[b]--; g.blocks[b] > 0 {
			g.shrinks--
		} else {
			delete(g.blocks, b)
		}
	}
	k.others.group, k.others.mode = nil, fallback.Mode{}
}

// attachAll makes the groups of an ownership that begins.
func (p *Partition) attachAll() {
	var names []*Key
	for name, k := range p.table.keys {
		if fallback.IsName(name) {
			names = append(names, k)
		}
	}
	for _, k := range names {
		p.attach(k)
	}
}

// group returns the key's group, nil if there is none.
func (k *Key) group() *group {
	if k.others == nil {
		return nil
	}
	return k.others.group
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
	mine, own := k.others.mode, g.downgrades(k)
	var others []*Key
	var modes []fallback.Mode
	for _, x := range g.keys {
		if x != k && !x.available() && (x != g.keys[0] || !own) {
			others, modes = append(others, x), append(modes, x.others.mode)
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

// downgrades reports whether the node that has waited longest for k wants it beside the exclusive
// hold, which it has: see fallback.Downgraded.
func (g *group) downgrades(k *Key) bool {
	if k.others.mode.Kind != fallback.Downgraded || len(k.others.queue) == 0 || g.keys[0].available() {
		return false
	}
	return !guard.Downgrades || g.keys[0].others.holder.Session == k.others.queue[0].id.Session // "": this node
}

// lessens reports whether another node asks for a smaller hold of a block that it has, or for one
// to downgrade to: it gives the first one back for that, so the number of its keys is no reason to
// refuse it. It may have one such request per block, and one downgraded hold per key.
func (p *Partition) lessens(l Link, name string) bool {
	key, m := fallback.Split(name)
	first := p.table.keys[key]
	if first == nil {
		return false
	}
	g := first.group()
	has := func(x *Key) bool {
		return x.others != nil && x.others.holder.Session != "" && x.others.holder.Session == l.Session()
	}
	switch {
	case m.Kind == fallback.Downgraded:
		return has(first) && (g == nil || !slices.ContainsFunc(g.keys, func(x *Key) bool {
			return x.others.mode.Kind == fallback.Downgraded && (has(x) || x.others.waits(l))
		}))
	case m.Block == "" || g == nil || g.blocks[m.Block] != 1:
		return false
	}
	return slices.ContainsFunc(g.keys, func(x *Key) bool { return has(x) && m.Shrinks(x.others.mode) })
}

// waits reports whether the node at the other end of a stream waits for the key.
func (g *grants) waits(l Link) bool {
	return slices.ContainsFunc(g.queue, func(c claimant) bool { return c.link == l })
}

// shrinksTo reports whether a node waits for k that has more permits of the same block.
func (g *group) shrinksTo(k *Key) bool {
	return g.shrinks > 0 && len(k.others.queue) > 0 && g.blocks[k.others.mode.Block] > 1 && slices.ContainsFunc(g.keys, func(x *Key) bool {
		return x != k && !x.available() && k.others.mode.Shrinks(x.others.mode)
	})
}

// first returns the key with the hold that is to be granted next, nil if none is wanted: one for
// the holder of the exclusive one or of a larger block, or that of the node that has waited
// longest.
func (g *group) first() *Key {
	for _, k := range g.keys[1:] {
		if g.downgrades(k) || g.shrinksTo(k) {
			return k
		}
	}
	return g.next()
}

// otherSize returns the number of permits that another hold of the key says, 0 if there is none
// with another number than k's name.
func (k *Key) otherSize() uint32 {
	g := k.group()
	if g == nil {
		return 0
	}
	mine := k.others.mode
	for _, x := range g.keys {
		if m := x.others.mode; mine.Kind == fallback.Permits && m.Kind == fallback.Permits && m.Of != mine.Of && !x.available() {
			return m.Of
		}
	}
	return 0
}

// refuseSize sends the nodes away that want permits of a number that is not that of the holds. It
// reports whether there were any.
func (p *Partition) refuseSize(k *Key, now time.Time, fx *Effects) bool {
	of := k.otherSize()
	if of == 0 {
		return false
	}
	queue := k.others.queue
	k.others.queue = nil
	for _, c := range queue {
		if c.link == nil {
			p.fail(k, nil, p.sizeError(k.name, of), now, fx)
			continue
		}
		c.link.Use(-1)
		if !c.link.Down() {
			p.denySize(c, k.name, of)
		}
	}
	return true
}

func (p *Partition) denySize(c claimant, name string, of uint32) {
	f := p.send(c.link, peer.Deny, name, c.id)
	f.Flags, f.Count = FlagSize, of
}

// sizeError returns the error for permits of a key that has another number of them.
func (p *Partition) sizeError(name string, of uint32) error {
	key, m := fallback.Split(name)
	return p.cfg.Size(key, m.Of, of)
}

// grantGroup gives the key's holds to the nodes that have waited longest, as long as the first
// one's fits. The holds in its way are recalled: so no node waits for those that came after it.
func (p *Partition) grantGroup(g *group, now time.Time, fx *Effects) {
	if g.granting {
		return // a hold was given back meanwhile, as it was recalled
	}
	g.granting = true
	for p.serves(now) { // if it does not, Lapsed ends the ownership, and tells those that wait
		k := g.first()
		if k == nil {
			break
		}
		if p.clear(g, k, now, fx); len(g.inTheWay(k)) == 0 {
			p.grantFirst(k, now, fx)
		} else if !p.refuseSize(k, now, fx) {
			break
		}
	}
	g.granting = false
	for _, k := range slices.Backward(slices.Clone(g.keys)) {
		p.ungroup(k)
	}
}

// clear recalls the holds in the way of a hold of k.
func (p *Partition) clear(g *group, k *Key, now time.Time, fx *Effects) {
	was := g.granting
	g.granting = true
	for _, x := range g.inTheWay(k) {
		p.recall(x, now, fx)
	}
	g.granting = was
}

// ungroup forgets a key of a group that no node has or wants.
func (p *Partition) ungroup(k *Key) {
	g := k.group()
	if g == nil || g.granting {
		return
	}
	unused := k.available() && k.q.Waiting() == 0 && len(k.others.queue) == 0 && k.contender == nil && k.request.link == nil
	if first := g.keys[0]; k != first {
		if !unused {
			return
		}
		g.detach(k)
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

// refuses reports whether a caller or node that only tries is to be sent away, and makes way for
// the next one. An own hold that lingers is no reason, nor is one that callers share, if none of
// them is inside.
func (p *Partition) refuses(k *Key, now time.Time, fx *Effects) bool {
	g := k.group()
	for _, x := range g.inTheWay(k) {
		g.granting = true
		if x.q.State() == handoff.Lingering {
			p.recallHere(x, now, fx)
		} else {
			p.vacated(x, now, fx)
		}
		g.granting = false
	}
	if g.next() == nil && len(g.inTheWay(k)) == 0 {
		return false
	}
	p.clear(g, k, now, fx)
	p.grantGroup(g, now, fx)
	return true
}
