package fallback

import "context"

// A WaiterLister is a Namespace that lists the requests that wait for a key. It is for inspection,
// and to remove those of dead sessions.
type WaiterLister interface {
	// Waiters returns the first requests in the key's queue, in order, as many as most: each as the
	// release that takes it out of the queue. It changes nothing.
	Waiters(ctx context.Context, partition uint32, key string, most int) ([]Release, error)
}

// Release returns the Release that takes the request out of the key's queue.
func (w Waiter) Release(partition uint32, key string) Release {
	return Release{Partition: partition, Key: named(key, w.Spec), Identity: w.Identity}
}

// waitersOf is Waiters of a queue.
func waitersOf(partition uint32, key string, queue []Waiter, most int) (all []Release) {
	for _, w := range queue[:min(len(queue), max(most, 0))] {
		all = append(all, w.Release(partition, key))
	}
	return all
}

// Waiters implements [WaiterLister].
func (n *memory) Waiters(ctx context.Context, partition uint32, key string, most int) (all []Release, err error) {
	err = n.do(ctx, func(Moment) {
		all = waitersOf(partition, key, n.space.parts[partition].Queues[key], most)
	})
	return all, err
}
