package subjects

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/coord"
)

var latencyTasks = harness.NewTask("latency", runLatency)

// latencyTask tells a worker to be the only caller of everything.
type latencyTask struct {
	Echo   string         `json:"echo"`  // address of the owner's echo of bytes
	Owner  int            `json:"owner"` // its process
	Blocks int            `json:"blocks"`
	Calls  int            `json:"calls"`
	Rivals []latencyRival `json:"rivals"`
}

type latencyRival struct {
	Variant string `json:"variant"`
	Server  string `json:"server"`  // how to connect to its own
	Process int    `json:"process"` // which that is; 0: it has none but Redis
}

// laneResult is what the worker found of one way to lock.
type laneResult struct {
	Name           string
	Rival          bool
	Redis, Served  bool      // it sends commands to Redis; the CPU time of the server is known
	P50            []float64 // nanoseconds, by block
	P99, P999, Max float64   // of all calls
	Stuck          int       // calls that did not return, and were given up
	Rounds         []stats.Round
}

type latencyResult struct {
	Lanes                 []laneResult
	Own, Forwarded, Other int64 // locks of the cluster, by path
}

// The lanes that are not rivals.
const (
	laneMutex     = "sync.Mutex"
	laneKeyed     = "mutex per key, in the process"
	laneTCP       = "TCP round trip of one byte"
	lanePing      = "PING"
	laneSet       = "SET NX PX"
	lanePair      = "SET NX PX and EVALSHA"
	laneOwn       = "Holdfast cluster, own key"
	laneForwarded = "Holdfast cluster, another's key"
	laneAlone     = "Holdfast without a cluster"
)

// stuckAfter is when a call is given up. There are rivals that lose a wake-up and would wait for
// ever.
const stuckAfter = 2 * time.Second

// apart is for locks without a cluster, beside those of one.
const apart = "-alone"

// laneBatch is how many calls are timed at a time where one takes as long as looking at the clock.
const laneBatch = 100

// lane is one way to lock, or a floor.
type lane struct {
	laneResult
	batch   int // calls that are timed at a time
	keys    []string
	call    func(ctx context.Context, key string) error
	count   *harness.Counter // of its connections; nil: it has none
	process int              // the server's, with those that it has started; 0: redis-server, or none
	samples []time.Duration
	after   func(ctx context.Context) error // of each block, not measured
}

// latencyRun is what the lanes have in common.
type latencyRun struct {
	admin *redis.Client
	c     *coord.Coordinator
	lanes []*lane
}

func runLatency(ctx context.Context, h *harness.Host, t latencyTask) (_ *latencyResult, err error) {
	var r latencyRun
	r.admin, _ = bareClient(h)
	keys := makeKeys("order", t.Calls)

	conn, err := net.Dial("tcp", t.Echo)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	bare, bareCount := bareClient(h)
	r.floors(h.Namespace, keys, conn, t.Owner, bare, bareCount)

	client, count := bareClient(h)
	if r.c, err = rivals.NewCoordinator(client, rivals.ClusterOptions(h.Order)); err != nil {
		return nil, err
	}
	defer func() { // now, as the worker has a limit for all that it closes at its end
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), harness.CloseTime)
		defer cancel()
		err = errors.Join(err, r.c.Close(ctx))
	}()
	if err := r.cluster(ctx, count, t); err != nil {
		return nil, err
	}
	alone, err := get(h, hotTask{Variant: "Holdfast", Goroutines: 1, Apart: apart})
	if err != nil {
		return nil, err
	}
	r.add(&lane{laneResult: laneResult{Name: laneAlone, Redis: true}, keys: keys, call: alone.once, count: alone.count})
	for _, rival := range t.Rivals {
		v, err := get(h, hotTask{Variant: rival.Variant, Goroutines: 1, Server: rival.Server, Apart: apart})
		if err != nil {
			return nil, err
		}
		r.add(&lane{
			laneResult: laneResult{Name: rival.Variant, Rival: true, Redis: rival.Process == 0},
			keys:       keys, call: v.once, count: v.count, process: rival.Process,
		})
	}
	return r.run(ctx, h, t)
}

// once locks and unlocks.
func (v *openVariant) once(ctx context.Context, key string) error {
	return v.Section(ctx, key, func(uint64) {})
}

func (r *latencyRun) add(l *lane) {
	l.batch = max(l.batch, 1)
	l.Served = l.Redis || l.process != 0 && harness.ProcessCPU([]int{l.process}) > 0
	r.lanes = append(r.lanes, l)
}

// floors adds what is not a distributed lock.
func (r *latencyRun) floors(prefix string, keys []string, conn net.Conn, echo int, c *redis.Client, count *harness.Counter) {
	redisKeys := make([]string, len(keys))
	for i, key := range keys {
		redisKeys[i] = prefix + ":" + key
	}
	var mu sync.Mutex
	r.add(&lane{laneResult: laneResult{Name: laneMutex}, batch: laneBatch, keys: keys, call: func(context.Context, string) error {
		mu.Lock()
		mu.Unlock() //nolint:staticcheck // the pair is what is measured
		return nil
	}})
	keyed := rivals.KeyedMutex{Keys: make(map[string]*rivals.CountedMutex)}
	r.add(&lane{laneResult: laneResult{Name: laneKeyed}, batch: laneBatch, keys: keys, call: func(_ context.Context, key string) error {
		keyed.Lock(key)
		keyed.Unlock(key)
		return nil
	}})
	r.add(&lane{laneResult: laneResult{Name: laneTCP}, keys: keys, process: echo,
		call: func(context.Context, string) error { return rivals.RoundTrip(conn) }})
	r.add(&lane{laneResult: laneResult{Name: lanePing, Redis: true}, keys: keys, count: count,
		call: func(ctx context.Context, _ string) error { return c.Ping(ctx).Err() }})
	r.add(&lane{laneResult: laneResult{Name: laneSet, Redis: true}, keys: redisKeys, count: count,
		call:  func(ctx context.Context, key string) error { return rivals.SetOnly(ctx, c, key) },
		after: func(ctx context.Context) error { return c.Unlink(ctx, redisKeys...).Err() }})
	r.add(&lane{laneResult: laneResult{Name: lanePair, Redis: true}, keys: redisKeys, count: count,
		call: func(ctx context.Context, key string) error { return rivals.SetPair(ctx, c, key) }})
}

// cluster adds the locks of a cluster of two: of keys that this process owns, and of keys that the
// other one does.
func (r *latencyRun) cluster(ctx context.Context, count *harness.Counter, t latencyTask) error {
	fr := forwardRun{c: r.c}
	if err := fr.warm(ctx, t.Calls); err != nil {
		return err
	}
	var own []string
	for i := 0; len(own) < t.Calls; i++ {
		key := "order-" + strconv.Itoa(i)
		if owner, ok := r.c.Owner(key); ok && owner.Self {
			own = append(own, key)
		}
	}
	r.add(&lane{laneResult: laneResult{Name: laneOwn, Redis: true}, batch: laneBatch, keys: own, call: fr.pair, count: count})
	r.add(&lane{laneResult: laneResult{Name: laneForwarded, Redis: true}, keys: fr.keys, call: fr.pair, count: count, process: t.Owner})
	return nil
}

func (r *latencyRun) run(ctx context.Context, h *harness.Host, t latencyTask) (*latencyResult, error) {
	res := new(latencyResult)
	for block := range t.Blocks + 1 {
		for i := range r.lanes {
			l := r.lanes[(i+block*5)%len(r.lanes)]
			h.At(block*len(r.lanes)+i, (t.Blocks+1)*len(r.lanes))
			before := r.c.Stats().Granted
			if err := l.block(ctx, r.admin, block == 0); err != nil {
				return nil, errors.Join(errors.New(l.Name), err)
			}
			if l.after != nil {
				if err := l.after(ctx); err != nil {
					return nil, err
				}
			}
			if block == 0 { // connections, scripts, pools
				continue
			}
			for path, n := range r.c.Stats().Granted {
				switch n := int64(n - before[path]); {
				case path == coord.PathOwn && l.Name == laneOwn:
					res.Own += n
				case path == coord.PathForwarded && l.Name == laneForwarded:
					res.Forwarded += n
				default:
					res.Other += n
				}
			}
		}
	}
	for _, l := range r.lanes {
		all := l.samples
		l.P99, l.P999, l.Max = stats.Quantile(all, 0.99), stats.Quantile(all, 0.999), stats.Quantile(all, 1)
		res.Lanes = append(res.Lanes, l.laneResult)
	}
	return res, nil
}

// block calls each key once, or laneBatch keys at a time, and notes what that took unless it is to
// warm up.
func (l *lane) block(ctx context.Context, admin *redis.Client, warm bool) error {
	// What the last lane has left to be done must not fall into this one.
	runtime.GC()
	time.Sleep(settle)
	server, err := l.serverCPU(ctx, admin)
	if err != nil {
		return err
	}
	samples := make([]time.Duration, 0, len(l.keys))
	meter, begun := harness.NewMeter(l.count), time.Now()
	limited, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(stuckAfter, cancel)
	defer func() { timer.Stop(); cancel() }()
	for i := range l.keys {
		timer.Reset(stuckAfter)
		begin := time.Now()
		for j := range l.batch {
			err := l.call(limited, l.keys[(i*l.batch+j)%len(l.keys)])
			if err != nil && limited.Err() != nil && ctx.Err() == nil {
				l.Stuck++
				limited, cancel = context.WithCancel(ctx)
				timer.Stop()
				timer = time.AfterFunc(stuckAfter, cancel)
				err = nil
			}
			if err != nil {
				return err
			}
		}
		samples = append(samples, time.Since(begin)/time.Duration(l.batch))
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	took := time.Since(begun)
	time.Sleep(settle) // what the calls have left to be done
	used := meter.Read(int64(len(l.keys) * l.batch))
	end, err := l.serverCPU(ctx, admin)
	if err != nil || warm {
		return err
	}
	l.P50 = append(l.P50, stats.Median(samples))
	l.samples = append(l.samples, samples...)
	l.Rounds = append(l.Rounds, stats.Round{
		Effort: used, Took: took, Server: end - server,
		P50: stats.Quantile(samples, 0.5), P99: stats.Quantile(samples, 0.99), P999: stats.Quantile(samples, 0.999), Max: stats.Quantile(samples, 1),
	})
	return nil
}

// serverCPU is the time that the lane's servers have used so far.
func (l *lane) serverCPU(ctx context.Context, admin *redis.Client) (total time.Duration, err error) {
	if l.process != 0 {
		total = harness.ProcessCPU(append(harness.Children(l.process), l.process))
	}
	if l.Redis {
		var redis time.Duration
		redis, err = harness.ServerCPU(ctx, admin)
		total += redis
	}
	return total, err
}
