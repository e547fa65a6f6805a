package coord

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// Hooks that simulations need, and no other package can reach.
func init() {
	wire.Use = func(cluster any, h wire.Host) { cluster.(*Cluster).host = h }
	wire.Session = func(c any) (string, time.Time) {
		if s := c.(*Coordinator).sessions.current(); s != nil {
			return s.ID, s.Deadline()
		}
		return "", time.Time{}
	}
	wire.Serves = func(c any, number uint32) (uint32, time.Time) {
		p := &c.(*Coordinator).parts[number]
		if !p.mu.TryLock() {
			return 0, time.Time{}
		}
		defer p.mu.Unlock()
		return p.Serving()
	}
	wire.Owned = func(c any) (n int) {
		parts := c.(*Coordinator).parts
		for i := range parts {
			p := &parts[i]
			if !p.mu.TryLock() {
				n++
				continue
			}
			if p.Phase() != lease.Unowned {
				n++
			}
			p.mu.Unlock()
		}
		return n
	}
	wire.Holding = func(c any, key string) (wire.Hold, time.Time) {
		p := c.(*Coordinator).partitionOf(key)
		if !p.mu.TryLock() {
			return wire.Hold{}, time.Time{}
		}
		defer p.mu.Unlock()
		h, ok := p.HoldOf(key)
		if !ok {
			return wire.Hold{}, time.Time{}
		}
		return wire.Hold{
			Session: h.Identity.Session, Request: h.Identity.Request, Own: h.Source == lease.SourceOwn || h.Source == lease.SourceHome, Owned: h.Epoch,
		}, lease.Earlier(h.Until.Session, h.Until.Slot)
	}
	wire.Look = func(c any, number uint32, name string) (x wire.Seen, ok bool) {
		p := &c.(*Coordinator).parts[number]
		if !p.mu.TryLock() {
			return wire.Seen{}, false
		}
		defer p.mu.Unlock()
		x.Epoch, x.ServesUntil = p.Serving()
		if h, ok := p.HoldOf(name); ok {
			x.Request, x.HasUntil = h.Identity.Request, lease.Earlier(h.Until.Session, h.Until.Slot)
		}
		return x, true
	}
	wire.Granted = func(c any, key string) (epoch uint32, session string, request uint64, until time.Time) {
		p := c.(*Coordinator).partitionOf(key)
		if !p.mu.TryLock() {
			return 0, "", 0, time.Time{}
		}
		defer p.mu.Unlock()
		epoch, until = p.Serving()
		if epoch == 0 {
			return 0, "", 0, time.Time{}
		}
		id, _ := p.HolderOf(key)
		return epoch, id.Session, id.Request, until
	}
	wire.Forget = func(c any, key string) {
		p := c.(*Coordinator).partitionOf(key)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.Forget(key)
	}
	wire.State = func(c any, key string) string {
		x := c.(*Coordinator)
		p := x.partitionOf(key)
		now := x.now()
		p.mu.Lock()
		defer p.mu.Unlock()
		return fmt.Sprintf("session %.4s, %s", x.sessions.id(), p.Describe(key, now))
	}
}

// sights returns the function of a simulation that sees this node's decisions; nil: there is none.
func sights(x *Cluster) func(lease.Sight) {
	if x == nil {
		return nil
	}
	if h, ok := x.host.(interface{ Saw(lease.Sight) }); ok {
		return h.Saw
	}
	return nil
}
