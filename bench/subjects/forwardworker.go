package subjects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/peer"
)

var forwardTasks = harness.NewTask("forward", runForward)

// forwardTask tells a worker to be the owner, if Echo is empty, or to lock what the owner has.
type forwardTask struct {
	Echo string `json:"echo"` // address of the other process's echo of bytes
	Peer string `json:"peer"` // and of its echo of frames

	Blocks  int           `json:"blocks"`
	Calls   int           `json:"calls"`
	Callers int           `json:"callers"`
	Round   time.Duration `json:"round"`
}

// forwardResult is the addresses of the owner, or what the caller found.
type forwardResult struct {
	Echo string `json:"echo"`
	Peer string `json:"peer"`

	TCP, Lock, Pair, Redis             []float64 // medians by block, nanoseconds
	AllTCP, AllLock, AllPair, AllRedis stats.Latency
	Rates, Bare                        []float64 // per second, by block
	Used                               [forwardParts][]stats.Effort
	Procs                              int
	Forwarded, Other                   int64 // locks, by path
}

// What efforts are of, in [forwardResult.Used]. The first three are what call makes.
const (
	forwardByte = iota
	forwardPair // of Redis
	forwardLock
	forwardMany
	forwardAlone
	forwardParts
)

// forward does the task. What the owner opens stays open until the worker ends.
func runForward(ctx context.Context, h *harness.Host, t forwardTask) (*forwardResult, error) {
	opts := rivals.ClusterOptions(h.Order)
	opts.Handoff.Linger = -1 // each lock is a request and a grant
	c, count, err := startNode(h, 0, opts)
	if err != nil {
		return nil, err
	}
	if t.Echo == "" {
		r := new(forwardResult)
		if r.Echo, err = echoBytes(h); err != nil {
			return nil, err
		}
		tr, err := peer.Start(peer.Options{Node: "echo", Namespace: "bench", Handler: frames{echo: true}})
		if err != nil {
			return nil, err
		}
		h.AtEnd(tr.Close)
		r.Peer = tr.Addr()
		return r, nil
	}
	r := forwardRun{c: c, count: count, prefix: h.Namespace}
	return r.run(ctx, h, t)
}

// echoBytes sends back what comes, until the worker ends.
func echoBytes(h *harness.Host) (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	var work sync.WaitGroup
	work.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		var buf [1]byte
		for {
			if _, err := io.ReadFull(c, buf[:]); err != nil {
				return
			}
			if _, err := c.Write(buf[:]); err != nil {
				return
			}
		}
	})
	h.AtEnd(func() error {
		err := l.Close()
		work.Wait() // the other process closes the connection, or ends
		return err
	})
	return l.Addr().String(), nil
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

// forwardRun is all sides of the comparison.
type forwardRun struct {
	c      *coord.Coordinator
	prefix string
	keys   []string // that the other node owns
	tcp    net.Conn
	redis  *redis.Client
	count  *harness.Counter // of c's client
	simple *harness.Counter // of redis
	stream *peer.Stream
	wake   []chan struct{}

	tcps, locks, pairs, rediss []time.Duration // of the block
}

func (r *forwardRun) run(ctx context.Context, h *harness.Host, t forwardTask) (_ *forwardResult, err error) {
	r.redis, r.simple = bareClient(h)
	if r.tcp, err = net.Dial("tcp", t.Echo); err != nil {
		return nil, err
	}
	defer r.tcp.Close()
	up := make(chan *peer.Stream, 16)
	for range t.Callers {
		r.wake = append(r.wake, make(chan struct{}, 1))
	}
	tr, err := peer.Start(peer.Options{Node: "caller", Namespace: "bench", Handler: frames{up: up, waiters: r.wake}})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tr.Close()) }()
	tr.SetPeers(map[string]string{"echo": t.Peer})
	select {
	case r.stream = <-up:
	case <-time.After(10 * time.Second):
		return nil, errors.New("no stream between the bare transports")
	}
	if err := r.warm(ctx, t.Callers); err != nil {
		return nil, err
	}

	res := forwardResult{Procs: runtime.GOMAXPROCS(0)}
	var tcps, locks, pairs, rediss []time.Duration
	before := r.c.Stats()
	for block := range t.Blocks + 1 {
		h.At(block, t.Blocks+1)
		r.tcps, r.locks, r.pairs, r.rediss = nil, nil, nil, nil
		for i := range t.Calls {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			for _, what := range perms[i%len(perms)] {
				if err := r.call(ctx, what, r.keys[i%len(r.keys)]); err != nil {
					return nil, err
				}
			}
		}
		single := [][]time.Duration{r.tcps, r.locks, r.pairs, r.rediss}
		var used [forwardParts]stats.Effort
		for what := range forwardMany { // one kind in a row, as they share a process
			meter := harness.NewMeter(r.count, r.simple)
			for i := range t.Calls / 4 {
				if err := r.call(ctx, what, r.keys[i%len(r.keys)]); err != nil {
					return nil, err
				}
			}
			used[what] = meter.Read(int64(t.Calls / 4))
		}
		r.tcps, r.locks, r.pairs, r.rediss = single[0], single[1], single[2], single[3]
		var rate, bare float64
		rounds := []func() error{
			func() (err error) { rate, used[forwardMany], err = r.many(ctx, t); return err },
			func() (err error) { bare, used[forwardAlone], err = r.bare(t); return err },
		}
		for i := range rounds {
			if err := rounds[(i+block)%2](); err != nil {
				return nil, err
			}
		}
		if block == 0 { // connections, scripts, pools
			continue
		}
		for i := range used {
			res.Used[i] = append(res.Used[i], used[i])
		}
		res.TCP, res.Lock = append(res.TCP, stats.Median(r.tcps)), append(res.Lock, stats.Median(r.locks))
		res.Pair, res.Redis = append(res.Pair, stats.Median(r.pairs)), append(res.Redis, stats.Median(r.rediss))
		res.Rates, res.Bare = append(res.Rates, rate), append(res.Bare, bare)
		tcps, locks = append(tcps, r.tcps...), append(locks, r.locks...)
		pairs, rediss = append(pairs, r.pairs...), append(rediss, r.rediss...)
	}
	res.AllTCP, res.AllLock, res.AllPair, res.AllRedis = stats.LatencyOf(tcps), stats.LatencyOf(locks), stats.LatencyOf(pairs), stats.LatencyOf(rediss)
	res.Forwarded, res.Other = byPath(r.c, before, coord.PathForwarded)
	return &res, nil
}

// warm finds keys that the other node owns, and waits until it serves them all.
func (r *forwardRun) warm(ctx context.Context, n int) error {
	if err := awaitStats(ctx, r.c, 10*time.Millisecond, func(s coord.Stats) bool {
		return len(r.c.Nodes()) == 2 && s.Owned > partitions/4 && s.Owned < partitions*3/4
	}); err != nil {
		return err
	}
	for i := 0; len(r.keys) < n; i++ {
		key := "order-" + strconv.Itoa(i)
		if owner, ok := r.c.Owner(key); ok && !owner.Self {
			r.keys = append(r.keys, key)
		}
	}
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		before := r.c.Stats().Granted[coord.PathForwarded]
		for _, key := range r.keys {
			if err := r.pair(ctx, key); err != nil {
				return err
			}
		}
		switch s := r.c.Stats(); {
		case s.Granted[coord.PathForwarded]-before == uint64(n):
			return nil
		case time.Since(begin) > 20*time.Second:
			return fmt.Errorf("locks of the other node's keys are not forwarded: %v", s.Granted)
		}
	}
}

func (r *forwardRun) pair(ctx context.Context, key string) error { return pair(ctx, r.c, key) }

// call makes one measured call.
func (r *forwardRun) call(ctx context.Context, what int, key string) error {
	begin := time.Now()
	switch what {
	case forwardByte:
		err := rivals.RoundTrip(r.tcp)
		r.tcps = append(r.tcps, time.Since(begin))
		return err
	case forwardPair:
		err := rivals.SetPair(ctx, r.redis, r.prefix+":"+key)
		r.rediss = append(r.rediss, time.Since(begin))
		return err
	}
	l, err := r.c.Lock(ctx, key)
	r.locks = append(r.locks, time.Since(begin))
	if err != nil {
		return err
	}
	err = l.Unlock()
	r.pairs = append(r.pairs, time.Since(begin))
	return err
}

// many lets all callers lock a key each, and returns how many locks per second that makes.
func (r *forwardRun) many(ctx context.Context, t forwardTask) (float64, stats.Effort, error) {
	return r.perSecond(t, func(i int) error { return r.pair(ctx, r.keys[i]) })
}

// bare is many with frames of the same size through the transport alone.
func (r *forwardRun) bare(t forwardTask) (float64, stats.Effort, error) {
	return r.perSecond(t, func(i int) error {
		f := peer.Frame{Kind: peer.Request, Partition: uint32(i), Request: 1 << 30, Key: []byte(r.keys[i])}
		if err := r.stream.Send(&f); err != nil {
			return err
		}
		<-r.wake[i]
		return nil
	})
}

// perSecond lets t.Callers goroutines call f for t.Round.
func (r *forwardRun) perSecond(t forwardTask, f func(caller int) error) (float64, stats.Effort, error) {
	var total atomic.Int64
	errs := make([]error, t.Callers)
	meter := harness.NewMeter(r.count)
	begin := time.Now()
	var over atomic.Bool
	timer := time.AfterFunc(t.Round, func() { over.Store(true) })
	defer timer.Stop()
	var work sync.WaitGroup
	for i := range errs {
		work.Go(func() {
			n := int64(0)
			for !over.Load() && errs[i] == nil {
				errs[i] = f(i)
				n++
			}
			total.Add(n)
		})
	}
	work.Wait()
	took := time.Since(begin)
	return float64(total.Load()) / took.Seconds(), meter.Read(total.Load()), errors.Join(errs...)
}
