package sim

import "time"

// again ends a process, as by SIGKILL or in an orderly way, and starts another one under the same
// name at the same address: at once, or when the one before is closed.
func (n *node) again(f Fault) {
	before := n.now
	if f.Both {
		left, gone := n.leave(), make(chan struct{})
		n.w.work.Go(func() {
			defer close(gone)
			left()
		})
		n.returns(before, gone)
		return
	}
	n.crash()
	if f.Some[0] { // its machine is there, and ends its connections
		before.h.refuse()
	}
	n.returnsAt(before.h.addr)
}

// returns waits for the end of the process before.
func (n *node) returns(before *start, gone chan struct{}) {
	select {
	case <-gone:
		n.returnsAt(before.h.addr)
	default:
		n.w.after(n.w.t(20*time.Millisecond), func() { n.returns(before, gone) })
	}
}

func (n *node) returnsAt(addr string) {
	if n.now == nil {
		n.w.outside.Again++
		n.startAt(addr)
	}
}

// refuse resets the other ends of a dead host's connections.
func (h *host) refuse() {
	h.net.mu.Lock()
	var its []*conn
	for c := range h.conns {
		its = append(its, c.other)
	}
	h.net.mu.Unlock()
	for _, c := range its {
		c.fail(errReset)
	}
}
