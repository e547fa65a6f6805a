package coord_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// A node that leaves gives each partition to the node that is next: when Close has returned, the
// others have all of them, though Debounce is far longer.
func TestLeave_HandsPartitionsOver(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	const debounce = 5 * time.Second
	a := fallback.NewMemory()
	var nodes []*coord.Coordinator
	for range 3 {
		o := unhurried()
		o.Cluster.Debounce = debounce
		nodes = append(nodes, join(t, a, o))
	}
	settled(t, 61, nodes...)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	begin := time.Now()
	if err := nodes[0].Close(ctx); err != nil {
		t.Fatal(err)
	}
	for _, c := range nodes[1:] {
		if err := c.Settled(ctx, 2); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begin); took > debounce/2 {
		t.Errorf("partitions had no owner for %v, with a Debounce of %v", took, debounce)
	}
}

// moves counts what the nodes of an arbiter do with partitions.
type moves struct {
	fallback.Arbiter
	looks, acquired, demoted atomic.Int64

	mu          sync.Mutex // protects the fields below
	free, most  int        // partitions without an owner, since the counts began
	first, last time.Time  // Demotes
}

func (a *moves) count(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.free += n
	a.most = max(a.most, a.free)
	if a.last = time.Now(); a.first.IsZero() {
		a.first = a.last
	}
}

type movesSpace struct {
	fallback.Namespace
	n *moves
}

func (a *moves) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := a.Arbiter.Attach(ctx, s)
	return &movesSpace{n, a}, err
}

func (n *movesSpace) Witness(ctx context.Context, p uint32, seen fallback.Token) (fallback.Record, error) {
	n.n.looks.Add(1)
	return n.Namespace.Witness(ctx, p, seen)
}

func (n *movesSpace) Acquire(ctx context.Context, p uint32, me string, x fallback.Expect) (fallback.Acquisition, error) {
	a, err := n.Namespace.Acquire(ctx, p, me, x)
	if err == nil && a.Verdict == fallback.Granted {
		n.n.acquired.Add(1)
		n.n.count(-1)
	}
	return a, err
}

func (n *movesSpace) Demote(ctx context.Context, p uint32, me string, epoch uint32, holds map[string]fallback.Row) (fallback.Demotion, error) {
	n.n.demoted.Add(1)
	n.n.count(1)
	return n.Namespace.Demote(ctx, p, me, epoch, holds)
}

// A node that leaves demotes each of its partitions once, two at a time, and the next owner takes it
// with one call: it knows the record.
func TestLeave_TakesTwoCallsForAPartition(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	a := &moves{Arbiter: fallback.NewMemory()}
	leaver, stays := join(t, a, unhurried()), join(t, a, unhurried())
	settled(t, 61, leaver, stays)
	owned := int64(leaver.Stats().Owned)
	looks, acquired, demoted := a.looks.Load(), a.acquired.Load(), a.demoted.Load()
	a.mu.Lock()
	a.free, a.most, a.first = 0, 0, time.Time{}
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := leaver.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := stays.Settled(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if d, x := a.demoted.Load()-demoted, a.acquired.Load()-acquired; d != owned || x != owned {
		t.Errorf("%d of %d partitions were demoted, and %d acquired", d, owned, x)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if took := a.last.Sub(a.first); took > coord.TakenWithin {
		t.Logf("it took %v: a node that is as slow is not waited for", took)
	} else if a.most > 2 {
		t.Errorf("%d partitions had no owner at the same time", a.most)
	}
	if n := a.looks.Load() - looks; n > owned/4 { // as a rule none: where a call that was begun before was too early
		t.Errorf("the next owner has looked at %d of %d records", n, owned)
	}
}
