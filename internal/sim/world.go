package sim

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	membership "github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/internal/model/spec"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/ring"
)

// Config describes a run.
type Config struct {
	Seed     uint64
	TTL      time.Duration // of sessions: T. All other times are parts or multiples of it
	Nodes    int           // places where a node runs, again and again
	Clients  int           // of each node
	Keys     int           // that they lock
	Think    time.Duration // between an unlock and the next lock, at most, if T were 10 s
	Ping     time.Duration // how often nodes ping each other, if T were 10 s; 0: the default
	Takeover time.Duration // Cluster.Takeover, if T were 10 s; 0: off
	Length   int           // of the time with faults, in T; then everything is mended, and 9 to 18 follow
	Drift    float64       // by how much clocks run fast or slow, at most
	Ends     bool          // by that much, not less
	Plan     []Fault       // the faults; nil: those of the seed
	Logger   *slog.Logger  // of the coordinators; nil: silent
	History  bool          // records the clients' observations
	Mute     bool          // the arbiter delivers no messages: nodes carry them, where there is a stream
	Observed bool          // the arbiter has no clock that counts: processes judge by their own ones. Then it delivers no messages, either
	Opened   bool          // replicas have each session before it counts. The arbiter is one server
	Spread   bool          // with Opened: some partitions are on a server of their own, as in a Redis Cluster
	Usual    bool          // the intervals of nodes, and Takeover if it is on, have their defaults
	Machines int           // so many that the nodes run on: those of one see each other end; 0: none does
	Refused  bool          // a call that is lost or not answered fails at once

	script func(*world)  // runs instead of the faults
	apart  bool          // processes have no Cluster
	blind  bool          // no process looks for circles
	hasty  bool          // processes look for circles all the time, and clients do little but get into them
	call   time.Duration // CallTimeout; 0: the default
	renew  time.Duration // RenewEvery; 0: a part of the TTL
	rates  []float64     // of the nodes' clocks then, if they have clocks of their own
}

// Random returns the default configuration of a run with that seed.
func Random(seed uint64) Config {
	r := rand.New(rand.NewPCG(seed, 3))
	// The number of nodes costs most, as each talks to each other one, and how often they do. So
	// there are more of the small clusters: most things that can go wrong do so there. There are
	// also more that ask each other no more often than they must.
	cfg := Config{
		Seed: seed, TTL: []time.Duration{3, 10, 10, 30, 100, 100}[r.IntN(6)] * time.Second, Nodes: []int{2, 2, 3, 3, 4}[r.IntN(5)],
		Clients: 1 + r.IntN(5), Keys: 1 + r.IntN(8), Think: []time.Duration{400, 1000, 2000}[r.IntN(3)] * time.Millisecond,
		Ping: []time.Duration{0, 1600, 1600}[r.IntN(3)] * time.Millisecond, Length: 30, Drift: []float64{0, 0.001, maxDrift}[r.IntN(3)],
		History:  seed%historyEvery == 0,
		Takeover: []time.Duration{0, 0, 3 * time.Second}[r.IntN(3)],
		Mute:     r.IntN(4) == 0,
		Observed: r.IntN(5) == 0,
		Opened:   r.IntN(4) == 0,
	}
	cfg.Spread = r.IntN(2) == 0 && cfg.Opened && !cfg.Observed
	cfg.Refused = r.IntN(3) == 0
	if cfg.Usual = r.IntN(6) == 0; cfg.Usual { // with a T that they are no part of
		cfg.TTL = []time.Duration{25, 35, 60}[r.IntN(3)] * time.Second
	}
	cfg.Machines = []int{0, 0, 1, 2}[r.IntN(4)]
	if r.IntN(40) == 0 {
		cfg.Nodes = 6 // each has five guardians, the most that there are
	}
	return cfg
}

// historyEvery makes one run in so many record its history. That takes a quarter of a run's time,
// and the judge has looked at all of it before.
const historyEvery = 4

// maxDrift is half of the drift that M allows for, which is a tenth of T.
const maxDrift = 0.05

// t is a length of time that would be d if T were 10 s.
func (cfg Config) t(d time.Duration) time.Duration {
	return time.Duration(float64(d) * cfg.TTL.Seconds() / 10)
}

// deadlocks returns coord.Options.DeadlockAfter.
func (cfg Config) deadlocks() time.Duration {
	switch {
	case cfg.blind:
		return -1
	case cfg.hasty:
		return cfg.t(20 * time.Millisecond)
	}
	return cfg.t(time.Second)
}

func (w *world) t(d time.Duration) time.Duration { return w.cfg.t(d) }

// Result is the outcome of a run.
type Result struct {
	Took   time.Duration // simulated
	Story  []string      // actions on the nodes, in order
	Bad    []string      // violations
	Grants int
	Writes int
	Late   int // writes that the resource refused
	Found  int // circles of callers
	Buried int // sessions that the arbiter buried

	Events   [spec.Kinds]int // that were compared with the specification
	Unknown  int             // deadlines that it could not ask a node for, which was busy
	Carried  int             // messages that nodes were to carry
	Ended    int             // Graces of partitions that ended early
	Watched  int             // sessions that observers declared dead
	Cleaned  int             // rows of other sessions that processes had listed, and removed
	Dequeued int             // waiters, the same
	Faults   map[kind]int
	Blocks   coord.PermitStats // of all processes

	Outside
	Records []history.Record
}

const (
	namespace  = "sim"
	partitions = 7
)

// world is one run.
type world struct {
	cfg   Config
	net   *network
	s     *server
	h     *judge
	log   *history.Log
	begin time.Time
	nodes []*node
	keys  []string
	times timeline

	traces   *traces
	carried  atomic.Int64
	ended    atomic.Int64 // Graces that ended early
	cleaned  atomic.Int64 // rows of other sessions that processes had listed, and removed
	dequeued atomic.Int64 // waiters of other sessions, the same
	watched  atomic.Int64 // answers of observers that a session is dead

	asked   atomic.Int64 // operators' calls
	broken  atomic.Int64 // as Outside.Broken
	drained atomic.Int64 // as Outside.Drained

	resting atomic.Bool // clients do not work for long any more, and not often

	story   []string
	faults  map[kind]int
	outside Outside

	mu     sync.Mutex // protects the fields below
	starts []*start   // all that there have been
	epochs map[won]string
	dead   map[string]bool    // sessions that the arbiter buried
	latest [partitions]uint32 // epoch

	work sync.WaitGroup
}

// node is a place where processes run, one after another.
type node struct {
	w      *world
	number int
	starts int
	now    *start        // nil: none runs
	wall   time.Duration // by how much the wall clock of its host is ahead
}

// start is one process.
type start struct {
	n      *node
	number int
	h      *host
	client *client
	ready  chan struct{}      // closed when c is there, or never will be
	c      *coord.Coordinator // nil if it could not be made
	rec    *history.Recorder
	dead   atomic.Bool // it does not exist any more, whatever its goroutines believe

	drained atomic.Bool // Drain has returned nil
	leaving atomic.Bool // it gives back its locks, and grants nothing
	ctx     context.Context
	stop    context.CancelFunc
	work    sync.WaitGroup // its clients

	semaphores sync.Map // of *coord.Semaphore, by key
}

// Run runs a simulation. It must be called in a bubble of testing/synctest.
func Run(cfg Config) Result {
	if cfg.Think == 0 {
		cfg.Think = 400 * time.Millisecond
	}
	if cfg.script == nil && cfg.Plan == nil {
		cfg.Plan = cfg.plan()
	}
	w := &world{cfg: cfg, net: newNetwork(cfg.Seed), h: newJudge(cfg.TTL), log: history.NewLog(), begin: time.Now(), faults: make(map[kind]int),
		epochs: make(map[won]string), dead: make(map[string]bool)}
	w.traces = newTraces(w)
	w.s = newServer(rand.New(rand.NewPCG(cfg.Seed, 2)), w.t(12*time.Second), cfg.Observed, cfg.Opened)
	w.s.skewed = &w.outside.Skewed
	w.h.state, w.net.bad = w.state, w.h.say
	ctx, stop := context.WithCancel(context.Background())
	w.work.Go(func() {
		for pause(ctx, max(time.Second, cfg.TTL/20)) == nil {
			w.net.probe(time.Now())
			w.restAll()
			w.gaveAway()
		}
	})
	for i := range cfg.Keys {
		w.keys = append(w.keys, fmt.Sprint("key", i))
	}
	for i := range cfg.Nodes {
		n := &node{w: w, number: i}
		w.nodes = append(w.nodes, n)
		<-n.start().ready
	}
	if cfg.script != nil {
		cfg.script(w)
	} else {
		w.schedule(cfg.Plan)
	}
	w.calm()
	for _, n := range w.nodes {
		if n.now != nil {
			n.leave()()
		}
	}
	stop()
	w.work.Wait()
	w.outside.Asked, w.outside.Broken, w.outside.Drained = int(w.asked.Load()), int(w.broken.Load()), int(w.drained.Load())
	var blocks coord.PermitStats
	for _, s := range w.starts {
		if s.c != nil {
			x := s.c.Stats().Permits
			blocks.Local, blocks.Asked, blocks.Shrunk = blocks.Local+x.Local, blocks.Asked+x.Asked, blocks.Shrunk+x.Shrunk
		}
	}
	return Result{
		Blocks: blocks,
		Took:   time.Since(w.begin), Story: w.story, Bad: append(w.h.bad, w.traces.bad...), Grants: w.h.grants, Writes: w.h.writes, Late: w.h.late, Found: w.h.tasks.found, Buried: len(w.dead), Faults: w.faults,
		Events: w.traces.events, Unknown: w.traces.unknown, Carried: int(w.carried.Load()), Ended: int(w.ended.Load()), Watched: int(w.watched.Load()), Cleaned: int(w.cleaned.Load()), Dequeued: int(w.dequeued.Load()),
		Outside: w.outside, Records: w.log.Records(),
	}
}

// state returns the views of a key by the arbiter and by every process that does not stand still.
func (w *world) state(key string) []string {
	lines := []string{w.s.describe(key)}
	for _, n := range w.nodes {
		s := n.now
		if s == nil || s.h.left() > 0 {
			continue
		}
		select {
		case <-s.ready:
			if s.c != nil {
				lines = append(lines, fmt.Sprintf("          %v: %s", s, wire.State(s.c, key)))
			}
		default:
		}
	}
	return lines
}

func (w *world) tell(f Fault) {
	w.faults[f.Kind]++
	w.say(f.String())
}

func (w *world) say(line string) {
	w.story = append(w.story, fmt.Sprintf("%8.3fs %s", time.Since(w.begin).Seconds(), line))
}

// usualSearch is how often a node looks for others that it does not know, by default.
const usualSearch = 5 * time.Second

// start starts a process.
func (n *node) start() *start { return n.startAt("") }

// startAt starts one at an address that another process has had; at a new one, if it is empty.
func (n *node) startAt(addr string) *start {
	w := n.w
	n.starts++
	s := &start{n: n, number: n.starts, h: w.net.newHostAt(addr), client: &client{s: w.s, w: w}, ready: make(chan struct{})}
	s.h.on = w.net.machineOf(n.number, w.cfg.Machines)
	s.h.clock = newClock(1, w.cfg.Seed, uint64(n.number)<<32|uint64(s.number)<<16|1<<15)
	if wire.Clocks && w.cfg.rates != nil {
		s.h.clock.rate = w.cfg.rates[n.number]
	} else if wire.Clocks && w.cfg.Drift > 0 {
		by := 2*s.h.clock.rng.Float64() - 1
		if w.cfg.Ends {
			by = math.Copysign(1, by)
		}
		s.h.clock.rate += w.cfg.Drift * by
	}
	s.h.clock.two = slices.ContainsFunc(w.cfg.Plan, func(f Fault) bool { return f.Kind == wall })
	s.h.clock.wall.Store(int64(n.wall))
	s.client.clock, s.client.of = s.h.clock, s
	s.h.saw = func(x lease.Sight) { w.traces.saw(s, x) }
	s.client.weather.latency = usual
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.rec = &history.Recorder{Process: fmt.Sprintf("%d.%d", n.number, s.number), Now: w.now, Put: func(r history.Record) {
		// A lock that was not granted need not be recorded.
		if w.cfg.History && !s.dead.Load() && (!r.Op.Takes() || !r.Unknown && !r.Refused) {
			w.log.Put(r)
		}
	}}
	s.h.clock.still = func(from, until time.Time) { s.rec.Paused(from.Sub(w.begin), until.Sub(w.begin)+w.h.slack) }
	n.now = s
	w.mu.Lock()
	w.starts = append(w.starts, s)
	w.mu.Unlock()
	cluster := &coord.Cluster{
		Membership: func(o ring.Options) (ring.Membership, error) {
			o.RediscoverEvery = max(usualSearch, w.t(usualSearch))
			o.Bind = "127.0.0.1:0" // else the machine is asked for its addresses
			return membership.StartOn(s.h, o)
		},
		Keepalive: w.t(w.cfg.Ping),
		Takeover:  takeover(w.t(w.cfg.Takeover)),
	}
	renew := w.ttl(n, s) / 4
	if cluster.Keepalive == 0 {
		cluster.Keepalive = w.ttl(n, s) / 10
	}
	if w.cfg.Usual {
		renew, cluster.Keepalive = 0, 0
		if w.cfg.Takeover > 0 {
			cluster.Takeover = 0
		}
	}
	wire.Use(cluster, s.h)
	opts := &coord.Options{
		Namespace: namespace, Name: fmt.Sprint("node", n.number), Partitions: partitions, SessionTTL: w.ttl(n, s), Cluster: cluster,
		RenewEvery: renew, StartUnavailable: true, DeadlockAfter: w.cfg.deadlocks(), LongWait: w.t(10 * time.Second), LongHold: w.t(time.Minute),
	}
	opts.CallTimeout = w.cfg.call
	if w.cfg.renew > 0 {
		opts.RenewEvery = w.cfg.renew
	}
	if w.cfg.apart {
		opts.Cluster = nil
	}
	if w.cfg.Logger != nil {
		opts.Logger = w.cfg.Logger.With("node", n.number, "start", s.number)
	}
	w.work.Go(func() {
		defer close(s.ready)
		c, err := coord.New(context.Background(), s.client, opts)
		if err != nil {
			if !s.dead.Load() {
				w.h.say("%v: New: %v", s, err)
			}
			return
		}
		s.c = c
		for i := range w.cfg.Clients {
			rng := rand.New(rand.NewPCG(w.cfg.Seed, uint64(n.number)<<32|uint64(s.number)<<16|uint64(i)))
			s.work.Go(func() { s.lockAndUnlock(i, rng) })
		}
	})
	return s
}

// ttl is the SessionTTL of a process. In one world of four a rolling deployment is under way: every
// other process has a longer one, and with it leases that the others' Grace would not outlast.
func (w *world) ttl(n *node, s *start) time.Duration {
	if w.cfg.script == nil && w.cfg.Seed%4 == 1 && (n.number+s.number)%2 == 1 {
		return w.cfg.TTL * 11 / 10
	}
	return w.cfg.TTL
}

// takeover returns a value for Cluster.Takeover.
func takeover(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// crash ends a process as SIGKILL does.
func (n *node) crash() {
	s := n.now
	n.now = nil
	s.dead.Store(true)
	s.client.mu.Lock()
	s.client.dead = true
	s.client.mu.Unlock()
	if s.h.on != nil {
		s.h.end()
	} else {
		s.h.die()
	}
	s.stop()
	now := n.w.now()
	n.w.log.Put(history.Record{Process: s.rec.Process, ID: 1 << 62, Op: history.Gone, Call: now, Return: now})
	n.w.work.Go(func() { // its last goroutines do no harm, and must end
		<-s.ready
		if s.c != nil {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = s.c.Close(ctx)
		}
		s.work.Wait()
		s.h.bury()
	})
}

// leave ends a process in an orderly way, and returns a function that waits for the end.
func (n *node) leave() func() {
	s := n.now
	n.now = nil
	s.leaving.Store(true)
	s.stop()
	return func() {
		<-s.ready
		if s.c != nil {
			ctx, cancel := context.WithTimeout(context.Background(), n.w.t(5*time.Second))
			defer cancel()
			_ = s.c.Close(ctx)
		}
		s.dead.Store(true)
		s.work.Wait()
		s.h.die()
		s.h.bury()
	}
}
