package coord_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// settledOpts are quick ones.
func settledOpts() *coord.Options {
	return &coord.Options{
		SessionTTL: 3 * time.Second, Grace: 4 * time.Second, Partitions: 31,
		Cluster: &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0", Debounce: 200 * time.Millisecond, Keepalive: 200 * time.Millisecond},
	}
}

// Where all nodes are settled each partition has one owner, and all locks are in memory.
func TestSettled(t *testing.T) {
	takes.Seconds(t)
	a := fallback.NewMemory()
	var nodes []*coord.Coordinator
	for n := 1; n <= 3; n++ {
		nodes = append(nodes, start(t, a, settledOpts()))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		owned := 0
		for i, c := range nodes {
			if err := c.Settled(ctx, n); err != nil {
				t.Fatalf("node %d of %d: %v", i+1, n, err)
			}
			if err := c.Settled(ctx, 0); err != nil { // it is
				t.Fatal(err)
			}
			owned += c.Stats().Owned
		}
		if owned != 31 {
			t.Errorf("%d nodes own %d partitions", n, owned)
		}
	}
	before := granted(nodes, coord.PathArbiter)
	for _, c := range nodes {
		for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
			l, err := c.Lock(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			unlock(t, l)
		}
	}
	if n := granted(nodes, coord.PathArbiter) - before; n != 0 {
		t.Errorf("%d locks were got from the arbiter", n)
	}
}

func granted(nodes []*coord.Coordinator, path coord.Path) (n uint64) {
	for _, c := range nodes {
		n += c.Stats().Granted[path]
	}
	return n
}

func TestSettledEnds(t *testing.T) {
	t.Parallel()
	a := fallback.NewMemory()
	c := must(coord.New(context.Background(), a, settledOpts()))
	defer c.Close(t.Context())
	late := errors.New("too late")
	ctx, cancel := context.WithCancelCause(t.Context())
	ends := make(chan error, 2)
	go func() { ends <- c.Settled(ctx, 2) }()
	cancel(late)
	if err := <-ends; !errors.Is(err, late) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	go func() { ends <- c.Settled(t.Context(), 2) }()
	if err := c.Settled(t.Context(), 1); err != nil {
		t.Errorf("alone: %v", err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ends; !errors.Is(err, coord.ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := c.Settled(t.Context(), 0); !errors.Is(err, coord.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestSettledWithoutACluster(t *testing.T) {
	c := must(coord.New(context.Background(), fallback.NewMemory(), nil))
	if err := c.Settled(t.Context(), 5); err != nil {
		t.Error(err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.Settled(t.Context(), 0); !errors.Is(err, coord.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
