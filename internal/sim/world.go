package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// Config is what a run is like.
type Config struct {
	Seed    uint64
	TTL     time.Duration // of sessions: T, of which all other times are a part or a multiple
	Nodes   int           // places where a node runs, again and again
	Clients int           // of each node
	Keys    int           // that they lock
	Length  int           // of the time with faults, in T; then everything is mended, and 18 to 27 follow
	Logger  *slog.Logger  // of the coordinators; nil: silent

	script func(*world) // what happens; nil: what the seed says
}

// Random returns what a run with that seed is like if nobody says.
func Random(seed uint64) Config {
	r := rand.New(rand.NewPCG(seed, 3))
	return Config{
		Seed: seed, TTL: []time.Duration{3, 10, 10, 30, 100}[r.IntN(5)] * time.Second, Nodes: 2 + r.IntN(3), Clients: 1 + r.IntN(5), Keys: 1 + r.IntN(8),
		Length: 30,
	}
}

// t is a length of time that would be d if T were 10 s.
func (w *world) t(d time.Duration) time.Duration {
	return time.Duration(float64(d) * w.cfg.TTL.Seconds() / 10)
}

// Result is what a run has shown.
type Result struct {
	Took   time.Duration // simulated
	Story  []string      // what was done to the nodes, in order
	Bad    []string      // what must not be
	Grants int
	Writes int
	Late   int // writes that the resource refused
	Faults map[string]int
}

const (
	namespace  = "sim"
	partitions = 7
)

// world is one run.
type world struct {
	cfg   Config
	rng   *rand.Rand // of the schedule only
	net   *network
	s     *server
	h     *history
	begin time.Time
	nodes []*node

	resting atomic.Bool // clients do not work for long any more

	mu     sync.Mutex // protects what follows
	story  []string
	faults map[string]int

	work sync.WaitGroup
}

// node is a place where processes run, one after another.
type node struct {
	w      *world
	number int
	starts int
	now    *start // nil: none runs
}

// start is one process.
type start struct {
	n      *node
	number int
	h      *host
	client *client
	c      *coord.Coordinator
	dead   atomic.Bool // it does not exist any more, whatever its goroutines believe
	ctx    context.Context
	stop   context.CancelFunc
	work   sync.WaitGroup // its clients
}

func (s *start) String() string { return fmt.Sprintf("node %d, start %d", s.n.number, s.number) }

// Run runs a simulation. It must be called in a bubble of testing/synctest.
func Run(cfg Config) Result {
	w := &world{
		cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0)), net: newNetwork(cfg.Seed), h: newHistory(), begin: time.Now(),
		faults: make(map[string]int),
	}
	w.s = newServer(rand.New(rand.NewPCG(cfg.Seed, 2)), w.t(12*time.Second))
	w.h.state = w.state
	ctx, stop := context.WithCancel(context.Background())
	w.work.Go(func() {
		for pause(ctx, time.Second) == nil {
			w.net.probe(time.Now())
		}
	})
	for i := range cfg.Nodes {
		n := &node{w: w, number: i}
		w.nodes = append(w.nodes, n)
		n.start()
	}
	if cfg.script != nil {
		cfg.script(w)
	} else {
		w.schedule()
	}
	w.calm()
	for _, n := range w.nodes {
		if n.now != nil {
			n.leave()
		}
	}
	stop()
	w.work.Wait()
	return Result{Took: time.Since(w.begin), Story: w.story, Bad: w.h.bad, Grants: w.h.grants, Writes: w.h.writes, Late: w.h.late, Faults: w.faults}
}

// state is what everybody knows of a key.
func (w *world) state(key string) []string {
	lines := []string{w.s.describe(key)}
	for _, n := range w.nodes {
		if s := n.now; s != nil {
			lines = append(lines, fmt.Sprintf("          %v: %s", s, wire.State(s.c, key)))
		}
	}
	return lines
}

func (w *world) tell(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	what, _, _ := strings.Cut(line, ":")
	w.faults[what]++
	w.story = append(w.story, fmt.Sprintf("%8.3fs %s", time.Since(w.begin).Seconds(), line))
}

// start starts a process.
func (n *node) start() {
	w := n.w
	n.starts++
	s := &start{n: n, number: n.starts, h: w.net.newHost(), client: &client{s: w.s}}
	s.client.weather.latency = time.Millisecond
	s.ctx, s.stop = context.WithCancel(context.Background())
	n.now = s
	cluster := &coord.Cluster{}
	wire.Use(cluster, s.h)
	opts := &coord.Options{Namespace: namespace, Partitions: partitions, SessionTTL: w.cfg.TTL, Cluster: cluster, StartUnavailable: true}
	if w.cfg.Logger != nil {
		opts.Logger = w.cfg.Logger.With("node", n.number, "start", s.number)
	}
	c, err := coord.New(s.client, opts)
	if err != nil {
		w.h.say("%v: New: %v", s, err)
		n.now = nil
		return
	}
	s.c = c
	for i := range w.cfg.Clients {
		rng := rand.New(rand.NewPCG(w.cfg.Seed, uint64(n.number)<<32|uint64(s.number)<<16|uint64(i)))
		s.work.Go(func() { s.lockAndUnlock(rng) })
	}
}

// lockAndUnlock is a client. It ends with the process.
func (s *start) lockAndUnlock(rng *rand.Rand) {
	w := s.n.w
	up := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(w.t(d)))) }
	for pause(s.ctx, up(400*time.Millisecond)) == nil {
		key := fmt.Sprint("key", rng.IntN(w.cfg.Keys))
		lock, limit := s.c.Lock, up(20*time.Second)
		if rng.IntN(8) == 0 {
			lock = s.c.TryLock
		}
		ctx, cancel := context.WithTimeout(s.ctx, limit)
		l, err := lock(ctx, key)
		cancel()
		if err != nil || s.dead.Load() {
			continue
		}
		g := w.h.granted(s, key, l)
		what := rng.IntN(20)
		if w.resting.Load() {
			what = 20
		}
		switch what {
		case 0: // it works for long
			_ = pause(s.ctx, up(40*time.Second))
		case 1, 2: // it stops when it is told that the lock is lost
			_ = pause(g.ctx, up(8*time.Second))
		default:
			_ = pause(s.ctx, up(20*time.Millisecond))
		}
		if s.dead.Load() {
			continue
		}
		w.h.write(key, g)
		w.h.releasing(g)
		if err := l.Unlock(); err != nil && !errors.Is(err, coord.ErrLost) {
			w.h.say("%v: Unlock of %q: %v", s, key, err)
		}
	}
}

// crash ends a process as SIGKILL does.
func (n *node) crash() {
	s := n.now
	n.now = nil
	s.dead.Store(true)
	s.h.die()
	s.client.mu.Lock()
	s.client.dead = true
	s.client.mu.Unlock()
	s.stop()
	n.w.work.Go(func() { // what is left of it hurts nobody, and must end
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.c.Close(ctx)
		s.work.Wait()
		s.h.bury()
	})
}

// leave ends a process in an orderly way. It waits until that is done.
func (n *node) leave() {
	s := n.now
	n.now = nil
	s.stop()
	ctx, cancel := context.WithTimeout(context.Background(), n.w.t(5*time.Second))
	defer cancel()
	_ = s.c.Close(ctx)
	s.dead.Store(true)
	s.work.Wait()
	s.h.die()
	s.h.bury()
}

// calm mends everything, and then everything must work again (I8).
func (w *world) calm() {
	w.tell("calm")
	w.resting.Store(true)
	w.net.heal()
	w.net.mu.Lock()
	w.net.latency = time.Millisecond
	w.net.mu.Unlock()
	w.s.mu.Lock()
	w.s.down = false
	w.s.mu.Unlock()
	for _, n := range w.nodes {
		if n.now == nil {
			n.start()
		} else {
			n.now.client.set(func(x *weather) { *x = weather{latency: time.Millisecond} })
		}
	}
	time.Sleep(w.t(90 * time.Second)) // sessions end, Grace, doubts, and the longest a client works
	var work sync.WaitGroup
	for _, n := range w.nodes {
		for k := range w.cfg.Keys {
			work.Go(func() {
				s := n.now
				if s == nil {
					return
				}
				ctx, cancel := context.WithTimeout(context.Background(), w.t(90*time.Second))
				defer cancel()
				key := fmt.Sprint("key", k)
				l, err := s.c.Lock(ctx, key)
				if err != nil {
					w.h.mu.Lock()
					w.h.fail("I8: %v cannot lock %q: %v", s, key, err)
					w.h.bad = append(w.h.bad, w.state(key)...)
					w.h.mu.Unlock()
					return
				}
				g := w.h.granted(s, key, l)
				w.h.releasing(g)
				_ = l.Unlock()
			})
		}
	}
	work.Wait()
}
