package gossip_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/ring"
)

// The owners, as long as a node lives.
func ExampleStart() {
	r, err := gossip.Start(ring.Options{
		Name:       "node-" + rand.Text(),
		Partitions: 1021,
		Label:      "holdfast/shop",
		Bind:       "127.0.0.1:0",
		Peer:       "127.0.0.1:7000",
		Session:    rand.Text(),
		Discover: func(ctx context.Context) ([]string, error) {
			return nil, nil // the addresses that nodes have registered at the arbiter
		},
		Debounce: 10 * time.Millisecond,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// Register r.Gossip() at the arbiter. Then, when the session is open:
	if err := r.SetState(ring.Active); err != nil {
		fmt.Println(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for placed := false; !placed; {
		v := r.View()
		if owner, ok := v.Owner(17); ok {
			fmt.Println("partition 17 is owned by", owner.Peer)
			placed = true
			continue
		}
		select {
		case <-v.Resettled(): // look again
		case <-ctx.Done():
			return
		}
	}

	// Give all partitions away, and then:
	if err := r.Leave(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: partition 17 is owned by 127.0.0.1:7000
}
