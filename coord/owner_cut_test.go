package coord_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// One of three nodes does not reach the arbiter. It goes on giving its keys to the other two, which
// want them by turns, until its session expires: they lose none of the keys that it gave last,
// however long they hold them.
func TestAnOwnerThatDoesNotReachTheArbiter_OthersLoseNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(o *coord.Options){
		"usual":            func(*coord.Options) {},
		"without takeover": func(o *coord.Options) { o.Cluster.Takeover = -1; o.Cluster.Keepalive = time.Second },
		"quick renewals":   func(o *coord.Options) { o.RenewEvery = 250 * time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			takes.Seconds(t)
			cutOwner(t, change)
		})
	}
}

func cutOwner(t *testing.T, change func(o *coord.Options)) {
	a := fallback.NewMemory()
	cut := &faulty{Arbiter: a}
	times := func() *coord.Options {
		o := quick()
		o.SessionTTL, o.Grace = 6*time.Second, 8*time.Second
		change(o)
		return o
	}
	owner := join(t, cut, times())
	others := []*coord.Coordinator{join(t, a, times()), join(t, a, times())}
	settled(t, 61, owner, others[0], others[1])

	const keys = 40
	var lost, locked atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var workers sync.WaitGroup
	for _, c := range others {
		for n := range keys {
			hold := 30 * time.Millisecond
			if n%2 == 1 {
				hold = 1500 * time.Millisecond
			}
			workers.Go(func() {
				for ctx.Err() == nil {
					l, err := c.Lock(ctx, fmt.Sprint("key", n))
					if err != nil {
						continue
					}
					locked.Add(1)
					select {
					case <-time.After(hold):
					case <-l.Context().Done():
					}
					if err := l.Unlock(); errors.Is(err, coord.ErrLost) {
						lost.Add(1)
						t.Log("lost: ", err)
					}
				}
			})
		}
	}
	cut.cut()
	await.Within(t, 20*time.Second, "the other two have its partitions", func() bool {
		return others[0].Stats().Owned+others[1].Stats().Owned == 61
	})
	cut.mend()
	cancel()
	workers.Wait()
	if n := lost.Load(); n > 0 {
		t.Errorf("%d locks of %d were lost at the nodes that reach the arbiter", n, locked.Load())
	}
}
