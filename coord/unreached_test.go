package coord_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// Callers who wait for less than RenewEvery get a key of an owner that their node cannot reach, too: it is the node that
// has been waiting, not the single caller.
func TestTheImpatientGetAKeyWhoseOwnerIsUnreachable(t *testing.T) {
	a := fallback.NewMemory()
	var gates []*gate
	var nodes []*coord.Coordinator
	for range 2 {
		g := newGate(t)
		o := quick()
		o.Cluster.Peer, o.Cluster.PeerAdvertise = g.target, g.addr
		gates, nodes = append(gates, g), append(nodes, join(t, a, o))
	}
	settle(t, 61, nodes...)
	key := ""
	for k := 0; key == ""; k++ {
		if n, _ := nodes[0].Owner(fmt.Sprint(k)); !n.Self {
			key = fmt.Sprint(k)
		}
	}
	for _, g := range gates {
		g.close(true)
	}
	begin, tries := time.Now(), 0
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond) // RenewEvery is 750 ms
		l, err := nodes[0].Lock(ctx, key)
		cancel()
		if err == nil {
			unlock(t, l)
			t.Logf("after %v and %d attempts that were given up", time.Since(begin), tries)
			return
		}
		if tries++; time.Since(begin) > 10*time.Second {
			t.Fatalf("not after %d attempts: %v", tries, err)
		}
	}
}

// A node that is new asks the arbiter until it has streams to the others. What was asked then goes to the owner as soon as there
// is a stream, and not after RetryEvery.
func TestWhatWasAskedBeforeThereWasAStream(t *testing.T) {
	o := quick()
	o.SessionTTL, o.Grace = 10*time.Minute, 12*time.Minute // and so RetryEvery 30 s
	a := &lonely{Arbiter: fallback.NewMemory(), owned: make(chan struct{}, 1)}
	owner := join(t, a, o)
	settle(t, 61, owner)
	a.alone.Store(true)
	c := join(t, a, o)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	locked := make(chan error, 1)
	go func() {
		l, err := c.Lock(ctx, "key")
		if err == nil {
			err = l.Unlock()
		}
		locked <- err
	}()
	select {
	case <-a.owned:
	case err := <-locked:
		t.Fatalf("locked without the owner: %v", err)
	}
	a.alone.Store(false)
	if err := <-locked; err != nil {
		t.Error(err)
	}
	if n := c.Stats().Granted[coord.PathForwarded]; n != 1 {
		t.Errorf("forwarded %d times, want 1", n)
	}
}

// lonely is an arbiter that does not tell a node who else there is.
type lonely struct {
	fallback.Arbiter
	alone atomic.Bool
	owned chan struct{} // capacity 1: somebody was told that a partition is owned
}

func (a *lonely) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	ns, err := a.Arbiter.Attach(ctx, s)
	return &lonelySpace{ns, a}, err
}

type lonelySpace struct {
	fallback.Namespace
	a *lonely
}

func (s *lonelySpace) List(ctx context.Context) (map[string]string, error) {
	if s.a.alone.Load() {
		return nil, errCut
	}
	return s.Namespace.List(ctx)
}

func (s *lonelySpace) Lock(ctx context.Context, r fallback.LockRequest) (fallback.LockAnswer, error) {
	ans, err := s.Namespace.Lock(ctx, r)
	if ans.Verdict == fallback.Owned {
		select {
		case s.a.owned <- struct{}{}:
		default:
		}
	}
	return ans, err
}
