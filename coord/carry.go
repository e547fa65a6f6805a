package coord

import (
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/peer"
)

// carry brings a message to a session where the arbiter delivers none ([fallback.Courier]): to this
// process's own, or over the stream to its node. If there is no stream that takes such frames, the
// session's callers ask by their timers. No partition is locked.
func (c *Coordinator) carry(session string, m fallback.Message) {
	if s := c.sessions.current(); s != nil && s.ID == session {
		if c.life.ctx.Err() == nil {
			c.handle(s, m)
		}
		return
	}
	if l := c.cluster.linkTo(session); l != nil && l.s.Frames() >= framesHint {
		_ = l.s.Send(c.hint(session, m))
	}
}

// hint is the frame of a message for a session. Its identity is the one that the message is about.
func (c *Coordinator) hint(to string, m fallback.Message) *peer.Frame {
	f := &peer.Frame{Kind: peer.Hint, Flags: uint8(m.Kind), Partition: m.Partition, Epoch: m.Epoch}
	if m.Kind == fallback.Revoked {
		return f
	}
	key, _ := fallback.Split(m.Key)
	f.Partition, f.Request, f.Key, f.Session = c.partitionOf(key).Number(), m.Request, []byte(m.Key), []byte(to)
	if m.Kind == fallback.Freed {
		f.Session = []byte(m.Session)
	}
	return f
}

// hints reports whether a Hint frame is one that nodes send.
func hints(f *peer.Frame) bool {
	switch fallback.MessageKind(f.Flags) {
	case fallback.Wake, fallback.Ask, fallback.Freed:
		return len(f.Key) > 0 && storable(f.Session)
	case fallback.Revoked:
		return true
	default:
		return false
	}
}

// hintIsOurs reports whether a Hint frame is for this node's present session.
func (c *Coordinator) hintIsOurs(f *peer.Frame) bool {
	switch fallback.MessageKind(f.Flags) {
	case fallback.Wake, fallback.Ask:
		return string(f.Session) == c.sessions.id()
	default:
		return true
	}
}

// hinted lets a message happen that another node has carried. Like one of the arbiter's it makes
// this node look: any node may send any.
func (p *partition) hinted(f *peer.Frame, now time.Time, fx *lease.Effects) {
	id := fallback.Identity{Session: string(f.Session), Request: f.Request}
	switch fallback.MessageKind(f.Flags) {
	case fallback.Wake:
		p.Woken(string(f.Key), id, fx)
	case fallback.Ask:
		p.Asked(string(f.Key), id, now, fx)
	case fallback.Freed:
		p.Freed(string(f.Key), id, now, fx)
	default:
		p.Summoned(f.Epoch, fx)
	}
}
