package coord_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// lateArbiter does not answer some of the calls that read many partitions, and counts the
// partitions that are read.
type lateArbiter struct {
	fallback.Arbiter
	late atomic.Int64 // so many calls
	read atomic.Int64
}

type lateSpace struct {
	fallback.Namespace
	a *lateArbiter
}

func (a *lateArbiter) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := a.Arbiter.Attach(ctx, s)
	return &lateSpace{n, a}, err
}

func (n *lateSpace) Verify(ctx context.Context, reads []fallback.Read) []fallback.State {
	n.a.read.Add(int64(len(reads)))
	if n.a.late.Add(-1) >= 0 {
		states := make([]fallback.State, len(reads))
		for i := range states {
			states[i].Err = errors.New("late")
		}
		return states
	}
	return n.Namespace.Verify(ctx, reads)
}

// After a failover all partitions are looked at. An answered partition is not asked for again
// because another one was late.
func TestASweepKeepsWhatWasAnswered(t *testing.T) {
	const partitions = 4096
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		net := &lateArbiter{Arbiter: a}
		start(t, net, &coord.Options{Partitions: partitions})
		time.Sleep(10 * time.Second)
		net.read.Store(0)
		net.late.Store(3)
		a.Restore(a.Snapshot())
		time.Sleep(10 * time.Second)
		if n := net.read.Load(); n < partitions || n > partitions+partitions/2 {
			t.Errorf("%d partitions were read, of %d", n, partitions)
		}
	})
}
