package coord

import "context"

// NodeContext returns a context for work that needs another node, by its NodeInfo.ID, such as a
// request that was sent to it. The context ends when the node is found dead, and [ErrNodeDead] is
// its cause. That is when the arbiter says that the node's last session is dead, to this node or to
// one that tells it: with Takeover 3 s, some 3 s after the node stopped. A node that its process
// closes ends no context, as it may finish its work; nor does Close of this coordinator. Of a node
// that is not listed, or not any more, and without a cluster, the context has ended; that of this
// node does not end. NodeContext does not block, and calls for one node return the same context.
func (c *Coordinator) NodeContext(id string) context.Context {
	switch x := c.cluster; {
	case x == nil:
		return deadNode
	case id == x.self.name:
		return context.Background()
	default:
		return x.members.lifeOf(id)
	}
}

// deadNode is the context of nodes that are dead.
var deadNode = func() context.Context {
	ctx, end := context.WithCancelCause(context.Background())
	end(ErrNodeDead)
	return ctx
}()

// nodeLife is a node's, until it is found dead.
type nodeLife struct {
	ctx context.Context // nil: not asked for yet
	end context.CancelCauseFunc
}

// lifeOf returns the context of a node's life.
func (m *members) lifeOf(node string) context.Context {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.nodes[node]
	if n == nil {
		return deadNode
	}
	if n.life.ctx == nil {
		n.life.ctx, n.life.end = context.WithCancelCause(context.Background())
	}
	return n.life.ctx
}

// endLife is told that a session is dead. It ends the life of its node, unless that has another
// session. One that comes later begins another life. A node that leaves may have work to finish.
func (m *members) endLife(session string) {
	if end := m.ending(session); end != nil {
		end(ErrNodeDead)
	}
}

// ending returns the function that ends a life, nil if there is none to end.
func (m *members) ending(session string) context.CancelCauseFunc {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, n := range m.nodes {
		x, has := n.sessions[session]
		if !has {
			continue
		}
		x.dead = true
		n.sessions[session] = x
		for _, x := range n.sessions {
			if !x.dead {
				return nil
			}
		}
		if _, left := m.left[name]; left {
			return nil
		}
		end := n.life.end
		n.life = nodeLife{ctx: deadNode}
		return end
	}
	return nil
}
