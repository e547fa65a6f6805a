package fallback

import "context"

// A WaiterLister is a Namespace that lists the requests which wait for a key, for those that inspect it.
type WaiterLister interface {
	// Waiters returns the first requests in the key's queue, in order, as many as most. It changes nothing.
	Waiters(ctx context.Context, partition uint32, key string, most int) ([]Identity, error)
}

// Waiters implements [WaiterLister].
func (n *memory) Waiters(ctx context.Context, partition uint32, key string, most int) (all []Identity, err error) {
	err = n.do(ctx, func(Moment) {
		for _, w := range n.space.parts[partition].Queues[key] {
			if len(all) < most {
				all = append(all, w.Identity)
			}
		}
	})
	return all, err
}
