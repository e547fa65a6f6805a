package coord_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/loopback"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// gate is a way to a node's peer port that can be closed.
type gate struct {
	addr, target string
	l            net.Listener

	mu    sync.Mutex // protects the fields below
	shut  bool
	conns map[net.Conn]bool
}

func newGate(t *testing.T) *gate {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{addr: l.Addr().String(), target: loopback.Address(t), l: l, conns: make(map[net.Conn]bool)}
	go g.run()
	t.Cleanup(func() { l.Close(); g.close(true) })
	return g
}

func (g *gate) run() {
	for {
		in, err := g.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", g.target)
		g.mu.Lock()
		if err != nil || g.shut {
			in.Close()
			if err == nil {
				out.Close()
			}
			g.mu.Unlock()
			continue
		}
		g.conns[in], g.conns[out] = true, true
		g.mu.Unlock()
		for _, x := range [][2]net.Conn{{in, out}, {out, in}} {
			go func() {
				io.Copy(x[0], x[1])
				x[0].Close()
				x[1].Close()
			}()
		}
	}
}

func (g *gate) close(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	for c := range g.conns {
		c.Close()
		delete(g.conns, c)
	}
}

// A node that is cut from its peers is no member of the gossip any more after some seconds. The
// others miss it for as long as the arbiter lists it.
func TestStats_MissesANodeThatIsCutOff(t *testing.T) {
	takes.Seconds(t)
	a := fallback.NewMemory()
	var gates []*gate
	var nodes []*coord.Coordinator
	for range 2 {
		ports, streams := newGate(t), newGate(t)
		o := quick()
		o.Cluster.Gossip, o.Cluster.GossipAdvertise = ports.target, ports.addr
		o.Cluster.Peer, o.Cluster.PeerAdvertise = streams.target, streams.addr
		gates, nodes = append(gates, ports, streams), append(nodes, join(t, a, o))
	}
	settled(t, 61, nodes...)
	missing := func(want int) func() bool {
		return func() bool { return nodes[0].Stats().Missing == want && nodes[1].Stats().Missing == want }
	}
	if !missing(0)() {
		t.Error("a node is missed that is there")
	}
	for _, g := range gates {
		g.close(true)
	}
	await.Within(t, 40*time.Second, "both miss the other one", missing(1))
	for range 40 { // for longer than a session lasts: the arbiter is asked again meanwhile
		if time.Sleep(200 * time.Millisecond); !missing(1)() {
			t.Fatal("the node is not missed any more")
		}
	}
	if err := nodes[1].Close(context.Background()); err != nil {
		t.Error(err)
	}
	await.Within(t, 30*time.Second, "a node that has left is missed no more", func() bool { return nodes[0].Stats().Missing == 0 })
}

// Two nodes lose each other, but both reach the arbiter: keys stay lockable from both, never for
// both at the same time, and a node keeps the other one's keys that it holds.
func TestNodesThatCannotReachEachOther(t *testing.T) {
	takes.Seconds(t)
	a := fallback.NewMemory()
	var gates []*gate
	var nodes []*coord.Coordinator
	for range 2 {
		g := newGate(t)
		o := quick()
		o.Cluster.Peer, o.Cluster.PeerAdvertise = g.target, g.addr
		gates, nodes = append(gates, g), append(nodes, join(t, a, o))
	}
	settled(t, 61, nodes...)
	// Each holds a key of the other's.
	var held []coord.Lock
	for i, c := range nodes {
		for k := 0; ; k++ {
			key := fmt.Sprintf("held %d by %d", k, i)
			if n, _ := c.Owner(key); !n.Self {
				held = append(held, lock(t, c, key))
				break
			}
		}
	}
	if n := nodes[0].Stats().Granted[coord.PathForwarded]; n == 0 {
		t.Fatal("nothing was forwarded")
	}
	h := hammer(t, nodes...)
	h.lap("before")
	for _, g := range gates {
		g.close(true)
	}
	h.lap("cut")
	h.lap("cut, later")
	for _, l := range held {
		if err := l.Context().Err(); err != nil {
			t.Errorf("a hold was lost: %v", context.Cause(l.Context()))
		}
	}
	for _, g := range gates {
		g.close(false)
	}
	h.lap("mended")
	h.stop()
	for _, l := range held {
		unlock(t, l)
	}
}

// hammering is callers of all nodes that want the same keys.
type hammering struct {
	t      *testing.T
	nodes  int
	mu     sync.Mutex                   // protects in
	in     [20]map[coord.Lock]time.Time // the locks that have a key, or had it and are not through, since when
	last   [20]atomic.Uint64
	locked [8][20]atomic.Int64
	lost   atomic.Int64
	work   sync.WaitGroup
	end    context.CancelFunc
	worst  atomic.Int64 // longest wait
}

// hammer starts them. A loss is counted; two holders and tokens that do not rise are errors.
func hammer(t *testing.T, nodes ...*coord.Coordinator) *hammering {
	h := &hammering{t: t, nodes: len(nodes)}
	ctx, end := context.WithCancel(t.Context())
	h.end = end
	for i, c := range nodes {
		for k := range h.in {
			h.work.Go(func() {
				for ctx.Err() == nil && h.once(ctx, c, i, k) {
				}
			})
		}
	}
	t.Cleanup(h.stop)
	return h
}

func (h *hammering) once(ctx context.Context, c *coord.Coordinator, i, k int) bool {
	begin := time.Now()
	l, err := c.Lock(ctx, fmt.Sprint("key", k))
	if err != nil {
		if ctx.Err() == nil {
			h.t.Error(err)
		}
		return false
	}
	if d := int64(time.Since(begin)); d > h.worst.Load() {
		h.worst.Store(d)
	}
	inside := l.Context()
	h.mu.Lock()
	if h.in[k] == nil {
		h.in[k] = make(map[coord.Lock]time.Time)
	}
	for other, since := range h.in[k] { // they had it before, so one that has it still had it when this lock was granted
		if inside.Err() == nil && other.Context().Err() == nil {
			h.t.Errorf("key %d: two holders (I1), of token %d since %v, and of %d", k, other.Fence(), time.Since(since), l.Fence())
		}
	}
	h.in[k][l] = time.Now()
	h.mu.Unlock()
	old := h.last[k].Load()
	for old < uint64(l.Fence()) && !h.last[k].CompareAndSwap(old, uint64(l.Fence())) {
		old = h.last[k].Load()
	}
	if inside.Err() == nil {
		if old >= uint64(l.Fence()) {
			h.t.Errorf("key %d: token %d after %d (I2)", k, l.Fence(), old)
		}
	}
	time.Sleep(100 * time.Microsecond)
	h.mu.Lock()
	delete(h.in[k], l)
	h.mu.Unlock()
	h.locked[i][k].Add(1)
	switch err := l.Unlock(); {
	case errors.Is(err, coord.ErrLost):
		h.lost.Add(1)
	case err != nil:
		h.t.Error(err)
	}
	return true
}

// lap waits until every node has had every key some times more.
func (h *hammering) lap(what string) {
	h.t.Helper()
	var before [8][20]int64
	for i := range h.nodes {
		for k := range h.in {
			before[i][k] = h.locked[i][k].Load()
		}
	}
	begin := time.Now()
	for i := range h.nodes {
		for k := range h.in {
			await.Until(h.t, fmt.Sprintf("%s: node %d has key %d", what, i, k), func() bool { return h.locked[i][k].Load() >= before[i][k]+3 })
		}
	}
	if what == "" {
		return
	}
	h.t.Logf("%s: all keys were had by all after %v; longest wait %v", what, time.Since(begin), time.Duration(h.worst.Swap(0)))
}

func (h *hammering) stop() {
	h.end()
	h.work.Wait()
}

// A node cannot reach the arbiter, but the others: it stops granting by its deadline, its locks are
// lost, and the others get its partitions.
func TestANodeThatCannotReachTheArbiter(t *testing.T) {
	takes.Seconds(t)
	a := fallback.NewMemory()
	net := &faulty{Arbiter: a}
	nodes := []*coord.Coordinator{join(t, net, quick()), join(t, a, quick()), join(t, a, quick())}
	settled(t, 61, nodes...)
	held := lock(t, nodes[0], "held")
	h := hammer(t, nodes[1:]...)
	h.lap("before")
	net.cut()
	h.lap("cut")
	<-held.Context().Done()
	if !errors.Is(context.Cause(held.Context()), coord.ErrLost) {
		t.Errorf("%v", context.Cause(held.Context()))
	}
	settle(t, 61, nodes[1:]...)
	h.lap("without it")
	net.mend()
	settle(t, 61, nodes...)
	h.lap("mended")
	unlock(t, lock(t, nodes[0], "held"))
	h.stop()
}

// The arbiter is down for less than the lease: nothing fails and nothing waits on owned partitions.
func TestAnOutageOfTheArbiterIsNotNoticed(t *testing.T) {
	takes.Seconds(t)
	a := fallback.NewMemory()
	net := &faulty{Arbiter: a}
	var nodes []*coord.Coordinator
	for range 3 {
		o := quick() // but that a busy machine need not make haste
		o.SessionTTL, o.Grace, o.Cluster.Keepalive, o.Cluster.Takeover = 12*time.Second, 15*time.Second, time.Second, -1
		nodes = append(nodes, join(t, net, o))
	}
	settled(t, 61, nodes...)
	held := lock(t, nodes[0], "held")
	h := hammer(t, nodes...)
	h.lap("before")
	mended := make(chan struct{})
	net.cut()
	time.AfterFunc(6*time.Second, func() { // T - M - R is 7.8 s, whatever the laps take
		net.mend()
		close(mended)
	})
	laps := 0
	for over := false; !over; {
		h.lap("")
		select {
		case <-mended:
			over = true
		default:
			laps++
		}
	}
	if laps == 0 {
		t.Error("not every node had every key while the arbiter was away")
	}
	t.Logf("%d laps without the arbiter; longest wait %v", laps, time.Duration(h.worst.Swap(0)))
	h.lap("mended")
	h.stop()
	if n := h.lost.Load(); n > 0 {
		t.Errorf("%d locks were lost", n)
	}
	unlock(t, held)
}

// awaitEndOfGrace waits until nothing at the arbiter is in Grace, which is longer than any lease of
// before.
func awaitEndOfGrace(t *testing.T, a fallback.Arbiter) {
	t.Helper()
	n, err := a.Attach(t.Context(), fallback.Settings{Namespace: "holdfast", Partitions: 61, Grace: quick().Grace})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for p := range uint32(61) {
		await.Until(t, fmt.Sprintf("partition %d is not in Grace", p), func() bool {
			r, err := n.Load(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			return r.Grace == 0
		})
	}
}

// The arbiter fails over to a state of before; or loses everything. Owners reclaim.
func TestFailoverOfTheArbiterInACluster(t *testing.T) {
	takes.Seconds(t)
	for _, what := range []string{"stale", "empty"} {
		t.Run(what, func(t *testing.T) {
			a := fallback.NewMemory()
			var nodes []*coord.Coordinator
			for range 2 {
				nodes = append(nodes, join(t, a, quick()))
			}
			old := a.Snapshot()
			settle(t, 61, nodes...)
			held := lock(t, nodes[0], "held")
			h := hammer(t, nodes...)
			h.lap("before")
			if what == "empty" {
				old = nil
			}
			a.Restore(old)
			h.lap("at once")
			awaitEndOfGrace(t, a)
			h.lap("after Grace")
			settle(t, 61, nodes...)
			h.stop()
			if n := h.lost.Load(); n > 0 {
				t.Errorf("%d locks were lost", n)
			}
			unlock(t, held)
		})
	}
}
