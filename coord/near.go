package coord

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/guard"
	"github.com/holdfast-go/holdfast/internal/presence"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/ring"
)

// near is this node's sight of the other processes of its host: it sees them end, and they see this
// one.
type near struct {
	host  wire.Neighbour // nil: none
	place string         // of this process; "" if no other sees it

	// Only of follow.
	watched map[string]context.CancelFunc // by node: ends the goroutine that watches it
	tidied  time.Time
}

// tidyEvery is how often connections of watchers that are gone are closed.
const tidyEvery = time.Hour

// processes is the wire.Neighbour of real processes.
type processes struct{ sign *presence.Sign }

func (p *processes) Place() string { return presence.Place() }

func (p *processes) Show(node string) (err error) {
	p.sign, err = presence.Show(node)
	return err
}

func (p *processes) Hide() { p.sign.Close() }
func (p *processes) Tidy() { p.sign.Tidy() }

func (p *processes) Watch(ctx context.Context, node string) error {
	w, err := presence.Watch(node)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := w.Ended(ctx); err != nil {
		return fmt.Errorf("%w: %w", wire.ErrBroke, err)
	}
	return nil
}

// show makes this process visible to others of its host.
func (x *cluster) show() {
	o, n := x.c.opts.Cluster, &x.self.near
	if x.c.opts.takeover() == 0 || o.Unwatched {
		return
	}
	if o.host == nil {
		n.host = new(processes)
	} else if n.host, _ = o.host.(wire.Neighbour); n.host == nil {
		return
	}
	place := n.host.Place()
	if place == "" {
		n.host = nil
		return
	}
	if err := n.host.Show(x.self.name); err != nil {
		x.c.opts.Logger.Debug("holdfast: other processes of this host do not see this one", "error", err)
		n.host = nil
		return
	}
	n.place, n.watched, n.tidied = place, make(map[string]context.CancelFunc), x.c.now()
}

// hide ends that. Nothing of this process's may rest on a session that lives.
func (x *cluster) hide() {
	if x.self.near.host != nil {
		x.self.near.host.Hide()
	}
}

// watch has each other process of this host watched, from when it is a member.
func (x *cluster) watch(v *ring.View) {
	n := &x.self.near
	if n.host == nil {
		return
	}
	if now := x.c.now(); now.Sub(n.tidied) > tidyEvery { // only where nodes come and go
		n.tidied = now
		n.host.Tidy()
	}
	for name, end := range n.watched {
		if !x.members.has(name) {
			end()
			delete(n.watched, name)
		}
	}
	for _, node := range v.Nodes() {
		k, ok := x.members.card(node.Name)
		if !ok || k.Place != n.place || node.Name == x.self.name || n.watched[node.Name] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(x.c.life.ctx)
		n.watched[node.Name] = cancel
		x.c.life.work.Go(func() { x.watchNode(ctx, node.Name) })
	}
}

// watchNode watches the process of a node, until that has ended or ctx has.
func (x *cluster) watchNode(ctx context.Context, node string) {
	for {
		begun := x.c.now()
		err := x.self.near.host.Watch(ctx, node)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil, !guard.Proof && errors.Is(err, wire.ErrBroke):
			x.sawEnd(ctx, node)
			return
		case errors.Is(err, wire.ErrBroke) && x.c.since(begun) > x.c.opts.RenewEvery: // it lives, and has tidied up
			continue
		}
		if !sleep(ctx, jitter(x.c.opts.RenewEvery)) {
			return
		}
	}
}

// sawEnd has seen a node's process end. One that has said that it leaves may have closed its
// session before.
func (x *cluster) sawEnd(ctx context.Context, node string) {
	if x.members.gone(node) {
		if _, err := x.members.ask(ctx); err == nil && !x.members.registered(node) {
			return
		}
	}
	x.c.opts.Logger.Info("holdfast: a process of this host has ended", "node", node)
	x.hasEnded(node)
	x.streams.ended.witnesses(node)
}
