package owners

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
)

// A toucher is a node that owns the partitions only in which it has locked a key.
type toucher struct {
	c     *coord.Coordinator
	keys  []string // one of each partition that has no owner yet
	asked uint64   // locks that were granted by the node as the owner when the measuring began
}

// spare is in how many partitions more than are measured a key can be locked until the node has
// acquired one.
const spare = 50

// touch returns a node that is ready to acquire partitions.
func (s Store) touch(t *testing.T, a fallback.Arbiter) *toucher {
	t.Helper()
	s.Options.Partitions = rounds + spare
	x := &toucher{c: s.node(t, reserved{a}, untouched, 0)}
	seen := make(map[uint64]bool)
	for i := 0; len(seen) < s.Options.Partitions; i++ {
		if k := fmt.Sprint("key ", i); !seen[s.partition(k)] {
			seen[s.partition(k)] = true
			x.keys = append(x.keys, k)
		}
	}
	await.Within(t, time.Minute, "the node knows itself", func() bool { return owns(x.c, x.keys[0]) })
	await.Within(t, time.Minute, "the node acquires the partition in which it locks", func() bool {
		before := x.granted()
		if err := x.lock(); err != nil {
			t.Fatal(err)
		}
		return x.granted() > before
	})
	x.asked = x.granted()
	return x
}

func (x *toucher) granted() uint64 { return x.c.Stats().Granted[coord.PathOwn] }

// lock locks a key in a partition without an owner, another one each time.
func (x *toucher) lock() error {
	if len(x.keys) == 0 {
		return errors.New("no partition is left without an owner")
	}
	k := x.keys[0]
	x.keys = x.keys[1:]
	return lockAndUnlock(context.Background(), x.c, k)
}

// end checks that the node has granted each lock of the rounds as the owner, and has it leave: its
// partitions would cost the store something.
func (x *toucher) end(t *testing.T) {
	t.Helper()
	if n := x.granted() - x.asked; n != rounds {
		t.Errorf("the node has granted %d locks as the owner, want %d", n, rounds)
	}
	leave(t, x.c)
}

// reserved is an arbiter that makes a node acquire a partition only when a key of it is locked.
// Elsewhere a node that has joined acquires all partitions that it should own, at once.
type reserved struct{ fallback.Arbiter }

func (r reserved) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := r.Arbiter.Attach(ctx, s)
	if err != nil {
		return nil, err
	}
	return &reservedSpace{Namespace: n, acquired: make(map[uint32]bool)}, nil
}

type reservedSpace struct {
	fallback.Namespace

	mu       sync.Mutex // protects acquired
	acquired map[uint32]bool
}

func (n *reservedSpace) Acquire(ctx context.Context, p uint32, me string, x fallback.Expect) (fallback.Acquisition, error) {
	n.mu.Lock()
	n.acquired[p] = true
	n.mu.Unlock()
	return n.Namespace.Acquire(ctx, p, me, x)
}

// Verify answers that partitions that were not acquired are in Grace: a node looks at them so
// before it acquires them without being asked.
func (n *reservedSpace) Verify(ctx context.Context, reads []fallback.Read) []fallback.State {
	states := make([]fallback.State, len(reads))
	var let []fallback.Read
	var at []int
	n.mu.Lock()
	for i, r := range reads {
		if n.acquired[r.Partition] {
			let, at = append(let, r), append(at, i)
		} else {
			states[i].Record.Grace = time.Minute
		}
	}
	n.mu.Unlock()
	if len(let) > 0 {
		for i, s := range n.Namespace.Verify(ctx, let) {
			states[at[i]] = s
		}
	}
	return states
}
