package gossip

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/ring"
)

func TestEightNodesThatStartAtOnceAgree(t *testing.T) {
	takes.Seconds(t)
	var reg registry
	rings := make([]*Ring, 8)
	var wg sync.WaitGroup
	began := time.Now()
	for i := range rings {
		opts := options(fmt.Sprint("n", i))
		opts.Discover = reg.discover
		r := begin(t, opts, hooks{})
		rings[i] = r
		// As a real node does: its address is known, and so registered, only after the start.
		wg.Go(func() {
			reg.add(r.Gossip())
			if err := r.SetState(ring.Active); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	agree(t, rings...)
	t.Logf("agreed after %v", time.Since(began))
	for _, r := range rings {
		// A busy machine lets nodes miss one that is there, for a moment.
		v := await(t, r, "eight members", func(v *ring.View) bool {
			return !v.Settled().IsZero() && len(v.Nodes()) == 8 && len(v.Live()) == 8
		})
		first, _ := rings[0].View().Owner(17)
		if o, ok := v.Owner(17); !ok || o.Name != first.Name || o.Peer != "127.0.0.1:1" {
			t.Errorf("%s: partition 17 is %+v's, not %+v's", r.Name(), o, first)
		}
	}
}

// With the times that users get. Skipped in short mode, as it waits for D.
func TestDefaultTimes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 15 s")
	}
	t.Parallel()
	var reg registry
	rings := make([]*Ring, 8)
	began := time.Now()
	for i := range rings {
		opts := options(fmt.Sprint("n", i))
		opts.Discover, opts.RediscoverEvery, opts.Debounce, opts.MaxDebounce = reg.discover, 0, 0, 0
		rings[i] = begin(t, opts, hooks{tune: func(*memberlist.Config) {}})
		reg.add(rings[i].Gossip())
		rings[i].SetState(ring.Active)
	}
	for _, r := range rings {
		await(t, r, "8 members", func(v *ring.View) bool { return len(v.Nodes()) == 8 })
	}
	t.Logf("all saw all after %v", time.Since(began))
	agree(t, rings...)
	t.Logf("agreed after %v", time.Since(began))
	killed := time.Now()
	rings[7].Close()
	for _, r := range rings[:7] {
		await(t, r, "loss seen", func(v *ring.View) bool { return !sees(rings[7].Name())(v) })
	}
	t.Logf("all missed the killed node after %v", time.Since(killed))
	agree(t, rings[:7]...)
	t.Logf("and agreed without it after %v", time.Since(killed))
}

func TestAJoiningNodeOwnsNothing(t *testing.T) {
	t.Parallel()
	rings := cluster(t, 2, hooks{})
	opts := options("joining")
	opts.Seeds = []string{rings[0].Gossip()}
	r := begin(t, opts, hooks{})
	for _, x := range append(rings, r) {
		v := await(t, x, "joining node", sees(r.Name()))
		if n, _ := v.Node(r.Name()); n.State != ring.Joining {
			t.Errorf("state %v", n.State)
		}
	}
	// It learns the owners all the same.
	want := place(t, []string{rings[0].Name(), rings[1].Name()}, 271).Fingerprint()
	await(t, r, "placement", func(v *ring.View) bool { return v.Fingerprint() == want })
	if err := r.SetState(ring.Active); err != nil {
		t.Fatal(err)
	}
	agree(t, append(rings, r)...)
	if err := r.SetState(ring.Leaving); err != nil {
		t.Fatal(err)
	}
	agree(t, rings...)
	if n, ok := rings[0].View().Node(r.Name()); !ok || n.State != ring.Leaving {
		t.Errorf("the leaving node is gone already: %v, %v", n, ok)
	}
}

func TestAStartedNodePlacesNobodyUntilItHasLooked(t *testing.T) {
	t.Parallel()
	release, asked := make(chan struct{}), make(chan struct{}, 100)
	opts := options("n")
	opts.MaxDebounce = time.Hour
	opts.Discover = func(ctx context.Context) ([]string, error) {
		asked <- struct{}{}
		select {
		case <-release:
			return nil, nil
		default:
			return nil, errors.New("the arbiter is away")
		}
	}
	r := begin(t, opts, hooks{})
	r.SetState(ring.Active)
	await(t, r, "itself", func(v *ring.View) bool { n, ok := v.Node(r.Name()); return ok && n.State == ring.Active })
	for range 3 {
		<-asked
	}
	if v := r.View(); !v.Settled().IsZero() || len(v.Placement().Members()) > 0 {
		t.Errorf("settled %v with %q", v.Settled(), v.Placement().Members())
	}
	close(release)
	agree(t, r)
}

func TestANodeThatCanAskNobodyGoesOnAlone(t *testing.T) {
	t.Parallel()
	opts := options("n")
	opts.Discover = func(ctx context.Context) ([]string, error) { return nil, errors.New("the arbiter is away") }
	r := begin(t, opts, hooks{})
	r.SetState(ring.Active)
	agree(t, r) // after MaxDebounce
}

func TestLeave(t *testing.T) {
	t.Parallel()
	rings := cluster(t, 3, hooks{})
	if err := rings[2].Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-rings[2].Done()
	agree(t, rings[:2]...) // it has no partitions any more as soon as it is known to leave
	for _, r := range rings[:2] {
		await(t, r, "the node is gone", func(v *ring.View) bool { _, ok := v.Node(rings[2].Name()); return !ok })
	}
	if err := rings[2].Leave(t.Context()); err != nil {
		t.Errorf("second Leave: %v", err)
	}
	if err := rings[2].Close(); err != nil {
		t.Errorf("Close after Leave: %v", err)
	}
	if err := rings[2].SetState(ring.Active); err != ring.ErrClosed {
		t.Errorf("SetState: %v", err)
	}
	if err := rings[2].SetSession("x"); err != ring.ErrClosed {
		t.Errorf("SetSession: %v", err)
	}
}

func TestLeaveWithoutTimeEndsTheRingAllTheSame(t *testing.T) {
	t.Parallel()
	rings := cluster(t, 2, hooks{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := rings[1].Leave(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Leave: %v", err)
	}
	<-rings[1].Done()
	agree(t, rings[0])
}

func TestEndsAtOnceByManyCallers(t *testing.T) {
	t.Parallel()
	r := cluster(t, 2, hooks{})[0]
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			if i%2 == 0 {
				r.Close()
			} else {
				r.Leave(t.Context())
			}
			select {
			case <-r.Done():
			default:
				t.Error("returned before the end")
			}
		})
	}
	wg.Wait()
}

func TestACrashedNodeIsGoneAndPlacedUntilTheMembershipSettles(t *testing.T) {
	t.Parallel()
	rings := cluster(t, 3, hooks{})
	dead := rings[2]
	var partition uint32
	for o, _ := rings[0].View().Owner(partition); o.Name != dead.Name(); o, _ = rings[0].View().Owner(partition) {
		partition++
	}
	dead.Close()
	v := await(t, rings[0], "loss", func(v *ring.View) bool { return !sees(dead.Name())(v) })
	if n, ok := v.Node(dead.Name()); ok { // else this machine was too slow to see it
		if o, _ := v.Owner(partition); !n.Gone || o != n || o.Session != "s-n2" || o.Peer == "" {
			t.Errorf("%+v owns it", o)
		}
		if x, ok := v.BySession("s-n2"); !ok || x != n {
			t.Errorf("its session leads to %+v", x)
		}
	}
	if slices.ContainsFunc(rings[0].Members(), func(n ring.Node) bool { return n.Name == dead.Name() }) {
		t.Error("it is still a member")
	}
	agree(t, rings[:2]...)
	if n, ok := rings[0].View().Node(dead.Name()); ok {
		t.Errorf("still there: %+v", n)
	}
}

func TestAHealedPartitionMerges(t *testing.T) {
	takes.Seconds(t)
	var cut atomic.Bool
	side := make(map[string]bool) // by address
	var mu sync.Mutex
	var reg registry
	rings := make([]*Ring, 4)
	for i := range rings {
		opts := options(fmt.Sprint("n", i))
		opts.Discover = reg.discover
		me := i < 2
		rings[i] = begin(t, opts, hooks{
			cut: func(to string) bool {
				mu.Lock()
				defer mu.Unlock()
				return cut.Load() && side[to] != me
			},
			tune: func(c *memberlist.Config) {
				quick(c)
				c.GossipToTheDeadTime = time.Nanosecond // memberlist alone does not heal it
			},
		})
		mu.Lock()
		side[rings[i].Gossip()] = me
		mu.Unlock()
		reg.add(rings[i].Gossip())
		rings[i].SetState(ring.Active)
	}
	whole := agree(t, rings...)
	cut.Store(true)
	agree(t, rings[:2]...)
	agree(t, rings[2:]...)
	cut.Store(false)
	if agree(t, rings...) != whole {
		t.Error("another fingerprint")
	}
}

func TestClustersThatDidNotKnowEachOtherMerge(t *testing.T) {
	t.Parallel()
	var reg registry
	var both [2][]*Ring
	for side := range both {
		var seed []string
		for i := range 2 {
			opts := options(fmt.Sprintf("c%d-%d", side, i))
			opts.Discover, opts.Seeds = reg.discover, seed
			r := begin(t, opts, hooks{})
			seed = []string{r.Gossip()}
			r.SetState(ring.Active)
			both[side] = append(both[side], r)
		}
		agree(t, both[side]...)
	}
	for _, r := range slices.Concat(both[0], both[1]) {
		reg.add(r.Gossip())
	}
	agree(t, slices.Concat(both[0], both[1])...)
}

func TestSessionAndStateOfAPlacedNodeChangeAtOnceAndTheRestStays(t *testing.T) {
	t.Parallel()
	var reg registry
	rings := make([]*Ring, 3)
	for i := range rings {
		opts := options(fmt.Sprint("n", i))
		opts.Discover = reg.discover
		rings[i] = begin(t, opts, hooks{})
		reg.add(rings[i].Gossip())
		rings[i].SetState(ring.Active)
	}
	agree(t, rings...)
	before := rings[0].View()
	began := time.Now()
	if err := rings[2].SetSession("second"); err != nil {
		t.Fatal(err)
	}
	for _, r := range rings {
		v := await(t, r, "new session", func(v *ring.View) bool { _, ok := v.BySession("second"); return ok })
		if _, ok := v.BySession("s-n2"); ok {
			t.Error("the old session is still there")
		}
		if n, _ := v.Node(rings[2].Name()); n.Session != "second" {
			t.Errorf("%+v", n)
		}
	}
	t.Logf("all knew after %v", time.Since(began))
	v := rings[0].View()
	if v.Placement() == before.Placement() {
		select {
		case <-before.Replaced():
		default:
			t.Error("nobody would have been woken")
		}
		select {
		case <-v.Resettled():
			t.Error("woken for a placement that is the same")
		default:
		}
	} else if v.Fingerprint() != before.Fingerprint() {
		t.Logf("the placement changed meanwhile: a slow machine")
	}
	if n, _ := before.Node(rings[2].Name()); n.Session != "s-n2" {
		t.Error("an old View was changed")
	}
}
