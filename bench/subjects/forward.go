package subjects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/figures"
	"github.com/holdfast-go/holdfast/peer"
)

// forwardSizes: each block measures everything, in an order that changes.
type forwardSizes struct {
	Blocks  int
	Calls   int           // of each kind per block, by one caller
	Callers int           // at the same time, of a key each
	Round   time.Duration // how long they call, of locks and of the bare transport, per block
}

// Limits for locks that another node grants.
const (
	forwardTCP   = 1.25    // times a round trip of one byte, at most
	forwardRedis = 0.5     // times SET NX PX and EVALSHA, at most
	forwardRate  = 500_000 // locks per second by many callers, at least;
	forwardBare  = 0.7     // or this part of the bare transport's rate
)

// Lanes of forward, in the order of the table. The last two are of many callers.
const (
	forwardByte  = "TCP round trip of one byte"
	forwardLock  = "Lock"
	forwardPair  = "Lock and Unlock"
	forwardAlone = "requests, transport alone"
	forwardMany  = "locks"
)

// owner is the addresses of a process that owns some keys of a cluster, and echoes all bytes and
// frames.
type owner struct {
	Echo string // bytes
	Peer string // frames
}

var (
	ownerTasks   = harness.NewTask("owner", runOwner)
	forwardTasks = newLanes("forward", openForward)
)

// forwarding are the options of nodes that keep nothing: each lock is a request and a grant.
func forwarding(h *harness.Host) *coord.Options {
	o := rivals.ClusterOptions(h.Order)
	o.Handoff.Linger = -1
	return o
}

// runOwner makes the worker an owner, until it ends.
func runOwner(_ context.Context, h *harness.Host, _ struct{}) (o owner, err error) {
	if _, _, err = startNode(h, forwarding(h)); err != nil {
		return o, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return o, err
	}
	var work sync.WaitGroup
	work.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 1))
	})
	h.AtEnd(func() error {
		err := l.Close()
		work.Wait() // the other process closes the connection, or ends
		return err
	})
	tr, err := peer.Start(peer.Options{Node: "echo", Namespace: "bench", Handler: frames{echo: true}})
	if err != nil {
		return o, err
	}
	h.AtEnd(tr.Close)
	return owner{l.Addr().String(), tr.Addr()}, nil
}

// frames is one end of a bare transport: it sends each frame back, or wakes the caller of that
// number.
type frames struct {
	echo    bool
	up      chan *peer.Stream
	waiters []chan struct{}
}

func (f frames) Up(s *peer.Stream) {
	if f.up != nil {
		f.up <- s
	}
}

func (f frames) Down(*peer.Stream, error) {}

func (f frames) Frame(s *peer.Stream, x *peer.Frame) {
	if f.echo {
		_ = s.Pass(s, x)
		return
	}
	f.waiters[x.Partition] <- struct{}{}
}

type forwardTask struct {
	forwardSizes
	Owner owner
}

// openForward locks keys that the owner has.
func openForward(ctx context.Context, h *harness.Host, t forwardTask, r *laneRun) error {
	c, count, err := startNode(h, forwarding(h))
	if err != nil {
		return err
	}
	redis, simple := bareClient(h)
	tcp, err := net.Dial("tcp", t.Owner.Echo)
	if err != nil {
		return err
	}
	r.atEnd(func(context.Context) error { return tcp.Close() })
	f := frames{up: make(chan *peer.Stream, 16)}
	for range t.Callers {
		f.waiters = append(f.waiters, make(chan struct{}, 1))
	}
	tr, err := peer.Start(peer.Options{Node: "caller", Namespace: "bench", Handler: f})
	if err != nil {
		return err
	}
	r.atEnd(func(context.Context) error { return tr.Close() })
	tr.SetPeers(map[string]string{"echo": t.Owner.Peer})
	var stream *peer.Stream
	select {
	case stream = <-f.up:
	case <-time.After(10 * time.Second):
		return errors.New("no stream between the bare transports")
	}
	keys, _, err := othersKeys(ctx, c, t.Callers)
	if err != nil {
		return err
	}
	r.blocks, r.nodes, r.counters = t.Blocks, []*coord.Coordinator{c}, []*harness.Counter{count, simple}
	one := func(name string, run runner) *lane {
		return r.add(&lane{
			laneResult: laneResult{Name: name, Base: forwardByte}, group: "one caller", path: coord.PathForwarded, calls: t.Calls, run: run,
		})
	}
	one(forwardByte, single(func(context.Context, int) error { return rivals.RoundTrip(tcp) }))
	lock := one(forwardLock, nil)
	one(forwardPair, single(func(ctx context.Context, i int) error {
		begin := time.Now()
		l, err := c.Lock(ctx, keys[i%len(keys)])
		lock.note(float64(time.Since(begin)))
		if err != nil {
			return err
		}
		return l.Unlock()
	}))
	one(ownRedisLane, single(func(ctx context.Context, i int) error {
		return rivals.SetPair(ctx, redis, h.Namespace+":"+keys[i%len(keys)])
	}))
	many := func(name string, call func(ctx context.Context, caller int) error) {
		r.add(&lane{laneResult: laneResult{Name: name}, path: coord.PathForwarded, counters: []*harness.Counter{count},
			run: func(ctx context.Context, _, _ int) (span, error) {
				return perSecond(t.Callers, t.Round, func(caller int) error { return call(ctx, caller) })
			}})
	}
	many(forwardAlone, func(_ context.Context, i int) error {
		x := peer.Frame{Kind: peer.Request, Partition: uint32(i), Request: 1 << 30, Key: []byte(keys[i])}
		if err := stream.Send(&x); err != nil {
			return err
		}
		<-f.waiters[i]
		return nil
	})
	many(forwardMany, func(ctx context.Context, i int) error { return pair(ctx, c, keys[i]) })
	return nil
}

// othersKeys finds keys that the other one of two nodes owns, and as many of this one's own. It
// waits until the former serves them all.
func othersKeys(ctx context.Context, c *coord.Coordinator, n int) (others, own []string, err error) {
	if err := awaitStats(ctx, c, 10*time.Millisecond, func(s coord.Stats) bool {
		return len(c.Nodes()) == 2 && s.Owned > partitions/4 && s.Owned < partitions*3/4
	}); err != nil {
		return nil, nil, err
	}
	if others, err = keysOf(c, false, "order-", n); err != nil {
		return nil, nil, err
	}
	if own, err = keysOf(c, true, "order-", n); err != nil {
		return nil, nil, err
	}
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		before := c.Stats().Granted[coord.PathForwarded]
		for _, key := range others {
			if err := pair(ctx, c, key); err != nil {
				return nil, nil, err
			}
		}
		switch s := c.Stats(); {
		case s.Granted[coord.PathForwarded]-before == uint64(n):
			return others, own, nil
		case time.Since(begin) > 20*time.Second:
			return nil, nil, fmt.Errorf("locks of the other node's keys are not forwarded: %v", s.Granted)
		}
	}
}

// perSecond lets goroutines call f for a while.
func perSecond(callers int, d time.Duration, f func(caller int) error) (span, error) {
	var total atomic.Int64
	var over atomic.Bool
	var work errgroup.Group
	begin := time.Now()
	timer := time.AfterFunc(d, func() { over.Store(true) })
	defer timer.Stop()
	for i := range callers {
		work.Go(func() (err error) {
			n := int64(0)
			for ; !over.Load() && err == nil; n++ {
				err = f(i)
			}
			total.Add(n)
			return err
		})
	}
	err := work.Wait()
	return span{int(total.Load()), time.Since(begin)}, err
}

// measureForward lets one process lock keys that the other one owns.
func measureForward(ctx context.Context, b *Run) (report.Result, error) {
	s := b.Sizes.forward
	ws, pinned, err := b.StartPinned(ctx, "forward", "the owner")
	if err != nil {
		return report.Result{}, err
	}
	o, err := ownerTasks.Do(ws[1], struct{}{})
	if err != nil {
		return report.Result{}, err
	}
	r, err := forwardTasks.Do(ws[0], forwardTask{s, o})
	if err != nil {
		return report.Result{}, err
	}
	tcp, lock, pair, redis := r.lane(forwardByte), r.lane(forwardLock), r.lane(forwardPair), r.lane(ownRedisLane)
	table := [][]string{append([]string{"one caller, microseconds", "p50", "(min..max)", "ratio", "(min..max)", "p99"}, stats.UsedHead...)}
	for i, row := range r.beside(stats.Micros) {
		table = append(table, slices.Insert(row, 5, stats.Micros([]*laneResult{tcp, lock, pair, redis}[i].All.P99)))
	}
	table[2] = table[2][:6] // a Lock alone is not run, so its usage is not known
	locks, bare := r.lane(forwardMany), r.lane(forwardAlone)
	part := bare.times(locks)
	table = append(table, []string{fmt.Sprintf("%d callers, per second", s.Callers)})
	for _, x := range []struct {
		*laneResult
		ratio string
	}{{bare, "1"}, {locks, stats.Number(part)}} {
		table = append(table, slices.Concat([]string{x.Name}, stats.SpreadOf(x.rates()).Cells(), []string{x.ratio, "", ""}, stats.UsedPer(x.Rounds)))
	}
	return report.Result{
		Rungs: []chart.Bar{
			report.Bar("one byte there and back by TCP", chart.Floor, tcp.P50),
			report.TimesFloor(report.Bar("Lock and Unlock, another node's key", chart.Ours, pair.P50), pair.P50, tcp.P50, "TCP"),
		},
		Title: fmt.Sprintf("FORWARD: a lock whose owner is another process, and nothing is kept; %d blocks, by turns", s.Blocks),
		Table: table,
		Notes: []string{
			fmt.Sprintf("%s; GOMAXPROCS of the caller is %d", pinned, r.Procs),
			"p50: of each block, median of the blocks; ratio: to TCP, or to the transport alone, in each block",
			"CPU (nanoseconds) and allocations of the caller's process, commands and bytes to Redis: per operation, of rounds of one kind only",
			fmt.Sprintf("locks by path: forwarded %s, others %s", figures.Thousands(r.By["forwarded"]), figures.Thousands(r.By["other"])),
		},
		Claims: []report.Claim{
			report.AtMost(forwardTCP, lock.times(tcp), "median Lock, times a round trip of one byte by TCP"),
			report.AtMost(forwardRedis, pair.times(redis), "median Lock and Unlock, times SET NX PX and EVALSHA"),
			// Either will do, so the better one counts.
			report.AtLeast(1, max(stats.Median(locks.rates())/forwardRate, part/forwardBare), fmt.Sprintf("%d callers: times %s locks/s, or times %v of the transport alone",
				s.Callers, figures.Thousands(forwardRate), forwardBare)),
			report.AtMost(0, float64(r.By["other"]), "locks that were not forwarded"),
		},
	}, nil
}
