package gossip

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/takes"
	"github.com/holdfast-go/holdfast/ring"
)

func TestMain(m *testing.M) {
	takes.SideBySide(4)
	leak.Main(m)
}

const patience = 20 * time.Second // the machine may be slow; nothing waits that long otherwise

// quick makes a lost node be missed within a second.
func quick(c *memberlist.Config) {
	c.ProbeInterval, c.ProbeTimeout = 200*time.Millisecond, 100*time.Millisecond
	c.GossipInterval = 20 * time.Millisecond
	c.PushPullInterval = time.Second
	c.GossipToTheDeadTime = time.Second
}

// A registry takes the place of the arbiter for Discover.
type registry struct {
	mu    sync.Mutex
	addrs []string // guarded by mu
}

func (r *registry) add(addrs ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addrs = append(r.addrs, addrs...)
}

func (r *registry) discover(context.Context) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.addrs), nil
}

func options(name string) ring.Options {
	return ring.Options{
		Name: name + "-" + rand.Text()[:6], Partitions: 271, Label: "test", Bind: "127.0.0.1:0",
		Session: "s-" + name, Peer: "127.0.0.1:1",
		RediscoverEvery: 300 * time.Millisecond, Debounce: 150 * time.Millisecond, MaxDebounce: time.Second,
	}
}

func begin(t testing.TB, opts ring.Options, h hooks) *Ring {
	t.Helper()
	if h.tune == nil {
		h.tune = quick
	}
	r, err := start(opts, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// cluster starts n active nodes that find each other by a registry.
func cluster(t *testing.T, n int, h hooks) []*Ring {
	t.Helper()
	var reg registry
	rings := make([]*Ring, n)
	for i := range rings {
		opts := options(fmt.Sprintf("n%d", i))
		opts.Discover = reg.discover
		rings[i] = begin(t, opts, h)
		reg.add(rings[i].Gossip())
		if err := rings[i].SetState(ring.Active); err != nil {
			t.Fatal(err)
		}
	}
	agree(t, rings...)
	return rings
}

func await(t testing.TB, r *Ring, what string, ok func(*ring.View) bool) *ring.View {
	t.Helper()
	timeout := time.After(patience)
	for {
		v := r.View()
		if ok(v) {
			return v
		}
		select {
		case <-v.Replaced():
		case <-r.Done():
			t.Fatalf("%s: the ring ended", what)
		case <-timeout:
			t.Fatalf("%s: never; %s sees %+v, placed: %q", what, r.Name(), v.Nodes(), v.Placement().Members())
		}
	}
}

// agree waits until exactly these nodes are placed, everywhere.
func agree(t *testing.T, rings ...*Ring) uint64 {
	t.Helper()
	var members []string
	for _, r := range rings {
		members = append(members, r.Name())
	}
	want := place(t, members, 271)
	for _, r := range rings {
		await(t, r, "agreement", func(v *ring.View) bool { return v.Fingerprint() == want.Fingerprint() })
	}
	return want.Fingerprint()
}

func alone(t *testing.T, rings ...*Ring) {
	t.Helper()
	for _, r := range rings {
		if m := r.Members(); len(m) > 1 {
			t.Errorf("%s has members %v", r.Name(), m)
		}
	}
}

func sees(name string) func(*ring.View) bool {
	return func(v *ring.View) bool { n, ok := v.Node(name); return ok && !n.Gone }
}

func place(t testing.TB, members []string, partitions int) *ring.Placement {
	t.Helper()
	p, err := ring.Place(members, partitions)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
