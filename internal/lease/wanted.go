package lease

import (
	"time"

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

// GiveWay gives back a hold of the key that lingers, for a caller of this process that tries to get the key by another name. It reports
// false if there is none. What the owner itself has is in no caller's way: see refuses.
func (p *Partition) GiveWay(key string, now time.Time, fx *Effects) bool {
	k := p.table.keys[key]
	if k == nil || k.q.State() != handoff.Lingering || k.hold.source == SourceOwn {
		return false
	}
	p.recallHere(k, now, fx)
	return true
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
