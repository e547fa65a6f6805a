package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// machine has the nodes of one machine, which see each other end (G9).
type machine struct {
	name  string
	shown map[string]*host // by the node's name; protected by net.mu
}

var errNotShown = errors.New("sim: no such node here")

// machineOf returns one of so many machines, nil if there are none.
func (n *network) machineOf(number, of int) *machine {
	if of == 0 {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.machines) < of {
		n.machines = append(n.machines, &machine{name: fmt.Sprint("machine", len(n.machines)), shown: make(map[string]*host)})
	}
	return n.machines[number%of]
}

// Place implements [wire.Neighbour].
func (h *host) Place() string {
	if h.on == nil {
		return ""
	}
	return h.on.name
}

// Show implements [wire.Neighbour].
func (h *host) Show(node string) error {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.on.shown[node] = h
	return nil
}

// Hide implements [wire.Neighbour].
func (h *host) Hide() {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if !h.dead && !h.hidden {
		h.hidden = true
		close(h.over)
	}
}

// Tidy implements [wire.Neighbour].
func (h *host) Tidy() {}

// Watch implements [wire.Neighbour].
func (h *host) Watch(ctx context.Context, node string) error {
	h.net.mu.Lock()
	there := h.on.shown[node]
	if there == nil || there.dead || there.hidden {
		h.net.mu.Unlock()
		return errNotShown
	}
	broke := there.broke
	h.net.mu.Unlock()
	select {
	case <-there.over:
		time.Sleep(h.net.late())
		return nil
	case <-broke:
		return wire.ErrBroke
	case <-ctx.Done():
		return ctx.Err()
	}
}

// breaks breaks the connections of those that watch a host.
func (h *host) breaks() {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	close(h.broke)
	h.broke = make(chan struct{})
}

// end ends a host as SIGKILL does: it sends nothing more, others of its machine see its end, and what
// is on its way arrives.
func (h *host) end() {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if h.dead {
		return
	}
	h.dead = true
	h.ended.Store(true)
	close(h.gone)
	if !h.hidden {
		close(h.over)
	}
}
