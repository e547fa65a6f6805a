package coord_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// quick are options of clusters in tests: real time, real sockets.
func quick() *coord.Options {
	o := &coord.Options{
		SessionTTL: 3 * time.Second, Grace: 4 * time.Second, Partitions: 61,
		Cluster: &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0", Debounce: 200 * time.Millisecond, Keepalive: 200 * time.Millisecond},
	}
	if os.Getenv("HOLDFAST_LOG") != "" {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level()}))
	}
	return o
}

func level() slog.Level {
	if os.Getenv("HOLDFAST_LOG") == "debug" {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// join starts a node.
func join(t testing.TB, a fallback.Arbiter, o *coord.Options) *coord.Coordinator {
	t.Helper()
	c, err := coord.New(context.Background(), a, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
			r, _ := c.Report(context.Background(), "")
			for _, e := range r.Events {
				t.Log(e.Time.Format(time.StampMilli), e.Level, e.Text)
			}
		}
	})
	return c
}

// settle waits until the nodes own all partitions among them.
func settle(t testing.TB, partitions int, nodes ...*coord.Coordinator) {
	t.Helper()
	await.Until(t, fmt.Sprintf("%d nodes own %d partitions", len(nodes), partitions), func() bool {
		owned := 0
		for _, c := range nodes {
			owned += c.Stats().Owned
		}
		all := owned == partitions
		for _, c := range nodes {
			active := 0
			for _, n := range c.Nodes() {
				if n.State == "active" {
					active++
				}
			}
			all = all && active == len(nodes) && (len(nodes) == 1 || c.Stats().Owned < partitions)
		}
		return all
	})
}

// settled is settle, and waits until none has still to be given to another: the last node may have
// come when the others had shared out all. The arbiter has to answer.
func settled(t testing.TB, partitions int, nodes ...*coord.Coordinator) {
	t.Helper()
	settle(t, partitions, nodes...)
	for _, c := range nodes {
		if err := c.Settled(t.Context(), len(nodes)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOneNodeOwnsAllAndAsksNobody(t *testing.T) {
	t.Parallel()
	c := join(t, fallback.NewMemory(), unhurried())
	settle(t, 61, c)
	before := c.Stats().Calls[coord.OpLock]
	var last uint64
	for range 100 {
		l := lock(t, c, "k")
		if uint64(l.Fence()) <= last {
			t.Fatalf("token %d after %d (I2)", l.Fence(), last)
		}
		last = uint64(l.Fence())
		unlock(t, l)
	}
	s := c.Stats()
	if s.Calls[coord.OpLock] != before || s.Granted[coord.PathOwn] < 100 {
		t.Errorf("%+v %+v", s.Calls, s.Granted)
	}
}

func TestNodesExcludeEachOther(t *testing.T) {
	t.Parallel()
	a := fallback.NewMemory()
	var nodes []*coord.Coordinator
	for range 3 {
		nodes = append(nodes, join(t, a, unhurried()))
	}
	settled(t, 61, nodes...)
	const keys, workers, rounds = 8, 8, 200
	var in [keys]atomic.Int32
	var last [keys]atomic.Uint64
	var work sync.WaitGroup
	for i, c := range nodes {
		for w := range workers {
			work.Go(func() {
				for r := range rounds {
					k := (i + w + r) % keys
					l, err := c.Lock(t.Context(), fmt.Sprint("key", k))
					if err != nil {
						t.Error(err)
						return
					}
					if in[k].Add(1) != 1 {
						t.Errorf("two holders (I1)")
					}
					if old := last[k].Swap(uint64(l.Fence())); old >= uint64(l.Fence()) {
						t.Errorf("token %d after %d (I2)", l.Fence(), old)
					}
					in[k].Add(-1)
					if err := l.Unlock(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	work.Wait()
	var sum [4]uint64
	for _, c := range nodes {
		s := c.Stats()
		for i, p := range []coord.Path{coord.PathOwn, coord.PathTurn, coord.PathForwarded, coord.PathArbiter} {
			sum[i] += s.Granted[p]
		}
	}
	t.Logf("own %d, delegated %d, forwarded %d, arbiter %d", sum[0], sum[1], sum[2], sum[3])
	if sum[3] > 0 || sum[0] == 0 || sum[2] == 0 {
		t.Errorf("paths %v", sum)
	}
}

// A node comes, and a node leaves, while all of them work: no lock fails, none is lost, no caller
// waits for long.
func TestNodesComeAndGo(t *testing.T) {
	takes.Seconds(t)
	long := unhurried().SessionTTL / 6 // a forgotten request or hold waits for a session to end, or for Grace
	a := fallback.NewMemory()
	var mu sync.Mutex
	var in [8]atomic.Int32
	var last [8]atomic.Uint64
	var total atomic.Int64
	var work sync.WaitGroup
	run := func(c *coord.Coordinator) {
		for w := range 4 {
			work.Go(func() {
				for r := 0; ; r++ {
					k := (w + r) % 8
					begin := time.Now()
					l, err := c.Lock(t.Context(), fmt.Sprint("key", k))
					if errors.Is(err, coord.ErrClosed) {
						return
					}
					if err != nil {
						t.Errorf("after %v: %v", time.Since(begin), err)
						return
					}
					if d := time.Since(begin); d > long {
						t.Errorf("waited %v", d)
					}
					if in[k].Add(1) != 1 {
						t.Error("two holders (I1)")
					}
					mu.Lock()
					if old := last[k].Swap(uint64(l.Fence())); old >= uint64(l.Fence()) {
						t.Errorf("token %d after %d (I2)", l.Fence(), old)
					}
					mu.Unlock()
					if r%50 == 0 {
						await.Throughout(t, time.Millisecond, "one holder (I1)", func() bool { return in[k].Load() == 1 })
					}
					in[k].Add(-1)
					if err := l.Unlock(); err != nil {
						t.Error(err)
					}
					total.Add(1)
				}
			})
		}
	}
	start := func() *coord.Coordinator {
		c, err := coord.New(context.Background(), a, unhurried())
		if err != nil {
			t.Fatal(err)
		}
		run(c)
		return c
	}
	nodes := []*coord.Coordinator{start(), start()}
	settle(t, 61, nodes...)
	for range 3 {
		nodes = append(nodes, start())
		settle(t, 61, nodes...)
		leaver := nodes[0]
		nodes = nodes[1:]
		if err := leaver.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		settle(t, 61, nodes...)
	}
	for _, c := range nodes {
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	work.Wait()
	t.Logf("%d locks", total.Load())
}

// A waiter for a key at the arbiter goes to the partition's new owner at once, not after
// RenewEvery: no message tells waiters at the arbiter any more that the key is free.
func TestWhoWaitsAtTheArbiterGoesToTheOwner(t *testing.T) {
	takes.Seconds(t)
	o := func() *coord.Options {
		o := unhurried()
		o.SessionTTL, o.RenewEvery, o.Grace, o.RetryEvery = 2*time.Minute, 30*time.Second, 140*time.Second, 200*time.Millisecond
		o.Cluster.Debounce = 4 * time.Second // for all to be waiting by then
		return o
	}
	a := fallback.NewMemory()
	nodes := []*coord.Coordinator{join(t, a, o()), join(t, a, o()), join(t, a, o())}
	const keys = 12 // some of each node's
	var locks []coord.Lock
	for i := range keys {
		locks = append(locks, lock(t, nodes[0], fmt.Sprint("key", i)))
	}
	if n := nodes[0].Stats().Owned; n > 0 {
		t.Fatalf("%d partitions are owned already", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // half of RenewEvery
	defer cancel()
	var work sync.WaitGroup
	defer work.Wait()
	for i := range keys {
		work.Go(func() {
			l, err := nodes[1+i%2].Lock(ctx, fmt.Sprint("key", i))
			if err != nil {
				t.Error(err)
				return
			}
			unlock(t, l)
		})
	}
	await.Until(t, "all wait", func() bool { return nodes[1].Stats().Waiting+nodes[2].Stats().Waiting == keys })
	settle(t, 61, nodes...)
	for _, l := range locks {
		unlock(t, l)
	}
}

func TestNodesTellTheirService(t *testing.T) {
	t.Parallel()
	a := fallback.NewMemory()
	plain, o := join(t, a, unhurried()), unhurried()
	o.Cluster.Service = "http://127.0.0.1:8080"
	other := join(t, a, o)
	settled(t, 61, plain, other)
	told := 0
	for _, n := range plain.Nodes() {
		switch {
		case n.Self && n.Service != "":
			t.Errorf("a node without a service has %q", n.Service)
		case !n.Self && n.Service != o.Cluster.Service:
			t.Errorf("the other's service is %q", n.Service)
		}
	}
	for i := range 100 {
		if n, ok := plain.Owner(fmt.Sprint("key", i)); ok && n.Service == o.Cluster.Service {
			told++
		}
	}
	if told == 0 || told == 100 {
		t.Errorf("%d of 100 keys have an owner with a service", told)
	}
}

func TestServicesThatCannotBeTold(t *testing.T) {
	for _, service := range []string{"http://a b", "http://ä", "http://a\n", strings.Repeat("x", 257)} {
		o := quick()
		o.Cluster.Service = service
		c, err := coord.New(context.Background(), fallback.NewMemory(), o)
		if err == nil {
			c.Close(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), "Options.Cluster.Service") {
			t.Errorf("%.20q: %v", service, err)
		}
	}
	o := quick()
	o.Cluster.Service = strings.Repeat("x", 256) // the longest, as the comment says
	join(t, fallback.NewMemory(), o)
}

func TestClusterOptionsThatMakeNoSense(t *testing.T) {
	for want, spoil := range map[string]func(*coord.Cluster){
		"Options.Cluster.Gossip ":          func(c *coord.Cluster) { c.Gossip = "localhost" },
		"Options.Cluster.Gossip listen":    func(c *coord.Cluster) { c.Gossip = "192.0.2.1:0" },
		"Options.Cluster.GossipAdvertise ": func(c *coord.Cluster) { c.GossipAdvertise = "0.0.0.0:1" },
		"Options.Cluster.GossipKeys ":      func(c *coord.Cluster) { c.GossipKeys = [][]byte{{1}} },
		"Options.Cluster.Seeds ":           func(c *coord.Cluster) { c.Seeds = []string{"a:b:c"} },
		"Options.Cluster.Peer ":            func(c *coord.Cluster) { c.Peer = "192.0.2.1:0" },
		"Options.Cluster.PeerAdvertise ":   func(c *coord.Cluster) { c.PeerAdvertise = "host" },
		"Options.Cluster.Keepalive ":       func(c *coord.Cluster) { c.Keepalive = time.Millisecond },
		"Options.Cluster.MaxDebounce ":     func(c *coord.Cluster) { c.MaxDebounce = time.Millisecond },
	} {
		o := quick()
		spoil(o.Cluster)
		c, err := coord.New(context.Background(), fallback.NewMemory(), o)
		if err == nil {
			c.Close(t.Context())
		}
		if err == nil || !strings.HasPrefix(err.Error(), "coord: "+want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// Keys keep strangers out: a node without them is not in the cluster, and still locks correctly, by
// the arbiter.
func TestKeysOfAClusterKeepStrangersOut(t *testing.T) {
	takes.Seconds(t)
	a := fallback.NewMemory()
	o := func() *coord.Options {
		o := unhurried()
		o.Cluster.GossipKeys = [][]byte{[]byte("16 bytes of keys")}
		return o
	}
	x, y := join(t, a, o()), join(t, a, o())
	settled(t, 61, x, y)
	stranger := join(t, a, unhurried())
	unlock(t, lock(t, stranger, "key"))
	for i := range 20 {
		key := fmt.Sprint("key", i)
		l := lock(t, stranger, key)
		for _, c := range []*coord.Coordinator{x, y} {
			if l, err := c.TryLock(t.Context(), key); err == nil {
				t.Errorf("%q is locked twice", key)
				unlock(t, l)
			}
		}
		unlock(t, l)
	}
	if n := len(x.Nodes()); n != 2 {
		t.Errorf("%d nodes, want 2", n)
	}
}

func TestAClusterByIPv6(t *testing.T) {
	t.Parallel()
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skip("no IPv6 here")
	} else {
		l.Close()
	}
	a := fallback.NewMemory()
	o := func() *coord.Options {
		o := unhurried()
		o.Cluster.Gossip = "[::1]:0"
		return o
	}
	x, y := join(t, a, o()), join(t, a, o())
	for _, c := range []*coord.Coordinator{x, y} { // with streams, too: a TryLock needs one
		if err := c.Settled(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		key := fmt.Sprint("key", i)
		l := lock(t, x, key)
		if _, err := y.TryLock(t.Context(), key); !errors.Is(err, coord.ErrLocked) {
			t.Errorf("%q: %v", key, err)
		}
		unlock(t, l)
	}
	if s := x.Stats(); s.Granted[coord.PathForwarded] == 0 {
		t.Errorf("nothing was forwarded: %v", s.Granted)
	}
}
