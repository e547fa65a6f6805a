package lease

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/handoff"
)

// over is the channel of turns that are wanted.
var over = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Wanted returns a channel that is closed when another caller or node asks for the key of a turn, or when the turn ends. It is closed
// already if that has happened.
func (p *Partition) Wanted(t *Turn, fence uint64) <-chan struct{} {
	k := t.Key(fence)
	if k == nil || t.lost != nil {
		return over
	}
	if k.wanted == nil {
		k.wanted = make(chan struct{})
		t.OnEnd(func(error) {}) // an Unlock in the usual case would leave the channel open
		if k.q.Waiting() > 0 || k.q.Recalled() || k.others != nil && len(k.others.queue) > 0 {
			k.want()
		}
	}
	return k.wanted
}

// want tells the turn that runs that the key is asked for.
func (k *Key) want() {
	if k.wanted != nil && k.wanted != over {
		close(k.wanted)
		k.wanted = over
	}
}

// unwant ends that with the turn.
func (k *Key) unwant() {
	k.want()
	k.wanted = nil
}

// GiveWay gives back an exclusive hold that lingers, for a caller of this process that tries to get the same key by another name, which k
// has. It reports false if there is none. What the owner itself has is in no caller's way: see refuses. It returns k, or if k was
// forgotten with the other hold a new one in its place.
func (p *Partition) GiveWay(k *Key, now time.Time, fx *Effects) (*Key, bool) {
	name := k.name
	key, _ := fallback.Split(name)
	x := p.table.keys[key]
	if key == name || x == nil || x.q.State() != handoff.Lingering || x.hold.source == SourceOwn {
		return k, false
	}
	p.recallHere(x, now, fx)
	return p.Key(name), true
}

// recallHere asks this node's own callers for a key, for another caller or node.
func (p *Partition) recallHere(k *Key, now time.Time, fx *Effects) {
	k.want()
	if k.q.Recall(now) == handoff.GiveBack {
		p.giveBack(k, now, fx)
		return
	}
	p.makeWay(k, now, fx)
}
