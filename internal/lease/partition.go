package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
)

// Partition is a node's state of one partition: the keys in use and, in a cluster, the ownership.
// Call Init before use.
type Partition struct {
	cfg    *Config
	number uint32

	granted [PathCount]uint64 // turns, by path
	out     *Ordered          // effects of the event; kept, to be used again
	ordered bool              // there are some

	// Of a cluster.
	phase Phase
	own   *ownership // nil: this node does not serve the partition

	table   table
	basis   basis
	tokens  tokens
	closing closing
	shelf   shelf // of an owner
	record  recordState
	moving  moving // while it is acquired or demoted
	bounds  bounds // that limit when it is served or acquired
}

// ownership is a partition that this node serves: from the answer to Acquire until it begins to
// demote it (I4).
type ownership struct {
	session   *Session
	epoch     uint32
	seq       uint32    // of the last token given out
	confirmed time.Time // the sending of the last call with an answer that confirmed it

	// Until then it is good, by the monotonic and by the wall clock.
	goodUntil time.Time
	goodWall  int64
	apart     bool // goodWall is not goodUntil's: the clocks disagree on the earlier one of two deadlines

	quickUntil Moment // until then the monotonic clock alone decides: a millisecond at most

	hold hold // of each key of its own callers; not to be written to
}

// table has the keys that a partition has in use.
type table struct {
	keys   map[string]*Key // that callers of this process use, or that linger
	peak   int             // largest size of keys since it was made
	links  []Link          // that the keys have asked, or that have asked for them, and perhaps some more
	unsure bool            // a hold of another node may be recalled, or its node out of reach
	recent *Key            // the key that was found last
	good   Moment          // until when the monotonic clock alone decides that its hold is in force
	unused *Key            // one to be used again
	spare  *hold           // holds to be used again
	spares int             // their number
	tags   map[*Key]any    // that the shell has put on keys
}

// basis is the foundation of the holds of a partition.
type basis struct {
	holds   int       // keys that have a hold
	remote  int       // keys with a hold that may have no row
	common  common    // the stream that all the remote ones rest on, if it is one: then Orphans and Lapsed need not look at each
	oldest  time.Time // no row was confirmed before; zero: none is
	settled time.Time // from when a row confirms a hold that rests on an owner; may be in the past
}

// common is the one stream to an owner that all of a partition's remote holds rest on, if they do.
// The owner's announcement there is a bound for all their deadlines, so not each has to be looked
// at.
type common struct {
	known bool // false: each hold is to be looked at
	from  Link
	pongs uint64 // the owner's word is for each hold after more pongs
}

// tokens are the highest tokens of a partition that its node has seen.
type tokens struct {
	seen    fallback.Token // the highest that the arbiter has told of; never lower
	brought fallback.Token // the highest that an owner has granted here; no evidence of the arbiter's data
}

// closing is the state of the coordinator's end, and of the waits of contenders at the arbiter.
type closing struct {
	ending  Ending
	turns   int     // that run
	waitFor Awaited // that contenders at the arbiter may wait for
}

// shelfSize is the number of unused keys that an owner keeps per partition. With them and two in
// use a map is small: it has no tables, and entries come and go without allocation.
const shelfSize = 6

// A shelf has keys that linger at their owner, or did: the oldest one comes next.
type shelf struct {
	keys  [shelfSize]*Key
	next  int
	spare *grants // to be used again
}

// recordState is this node's knowledge of the record: whether it may name this node, and whether
// that is being read.
type recordState struct {
	naming   Naming
	looking  Looking
	lookedAt time.Time // when LookingAtRecord began last
}

// Init makes the partition ready.
func (p *Partition) Init(cfg *Config, number uint32) { p.cfg, p.number = cfg, number }

// Number returns the partition's number.
func (p *Partition) Number() uint32 { return p.number }

// Find returns the key with a name, nil if it is not in use.
func (p *Partition) Find(name string) *Key {
	if k := p.table.recent; k != nil && k.name == name {
		return k
	}
	return p.look(name)
}

// look is Find of a key that was not the last one found.
func (p *Partition) look(name string) *Key {
	k := p.table.keys[name]
	if k != nil {
		p.table.recent, p.table.good = k, 0
	}
	return k
}

// Key returns the key with a name, a new one if it is not in use.
func (p *Partition) Key(name string) *Key {
	if k := p.table.keys[name]; k != nil {
		return k
	}
	k := p.add(name)
	if p.own != nil && fallback.IsName(name) {
		p.attach(k)
	}
	return k
}

// add returns a new key. There is none with that name.
func (p *Partition) add(name string) *Key {
	k := p.table.unused
	if k != nil {
		p.table.unused = nil
		k.name = name
	} else {
		k = &Key{name: name, hold: &noHold}
		k.first.key, k.turn = k, &k.first
	}
	if p.table.keys == nil {
		p.table.keys = make(map[string]*Key)
	}
	p.table.keys[name], k.known = k, true
	p.table.peak = max(p.table.peak, len(p.table.keys))
	return k
}

// Tidy forgets a key that is not in use: one that Live has made for a caller that is sent away.
func (p *Partition) Tidy(k *Key) { p.tidy(k) }

// tidy forgets a key that is not in use.
func (p *Partition) tidy(k *Key) {
	if k.q.State() != handoff.Idle || k.q.Waiting() > 0 || k.contender != nil || k.request.link != nil || k.others != nil || !k.known {
		return
	}
	delete(p.table.keys, k.name)
	if p.table.recent == k {
		p.table.recent, p.table.good = nil, 0
	}
	if p.table.tags != nil {
		delete(p.table.tags, k)
	}
	k.known = false
	if len(p.table.keys) == 0 && p.table.peak > 8 {
		p.table.keys, p.table.peak = nil, 0 // a map does not shrink by itself
	}
	if p.table.unused == nil && !k.listed && !k.shelved {
		k.used, k.moved, k.name = false, 0, ""
		p.table.unused = k
	}
}

// Tag puts a value of the shell's on a key, for as long as the key is in use.
func (p *Partition) Tag(k *Key, tag any) {
	if p.table.tags == nil {
		p.table.tags = make(map[*Key]any)
	}
	p.table.tags[k] = tag
}

// TagOf returns the value that Tag has put on a key, nil if there is none.
func (p *Partition) TagOf(k *Key) any { return p.table.tags[k] }

// saw notes a token that the arbiter has told of, or an epoch, as a token with the number 0. It is
// remembered for as long as the process lives: a lower one that the arbiter tells of later is old
// data.
func (p *Partition) saw(t fallback.Token) { p.tokens.seen = max(p.tokens.seen, t) }

// sawEpoch also forgets a token that an owner gave, if its epoch is not one that the arbiter knows:
// the owner was wrong.
func (p *Partition) sawEpoch(r fallback.Record) {
	p.saw(fallback.MakeToken(r.Epoch, 0))
	if p.tokens.brought.Epoch() > r.Epoch {
		p.tokens.brought = 0
	}
}

// Seen returns the highest token that the arbiter has told of by now.
func (p *Partition) Seen() fallback.Token { return p.tokens.seen }

// ReleaseOf returns the release that removes the row of a hold of a key.
func (p *Partition) ReleaseOf(key string, id fallback.Identity) fallback.Release {
	return fallback.Release{Partition: p.number, Key: key, Identity: id}
}

// AnnouncedEnds returns the end of all deadlines that were announced at epochs which this node has
// given up, by any node's clock.
func (p *Partition) AnnouncedEnds() time.Time { return p.bounds.announcedEnds }

// Ending returns the progress of Close.
func (p *Partition) Ending() Ending { return p.closing.ending }
