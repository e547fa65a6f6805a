//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/stall"
)

// job is the parameters of a node's process.
type job struct {
	Node     string
	Life     int
	IP       string
	Events   string // file
	Resource string // socket
	Mutant   string // the guard to take out, in a build with the tag mutants
	Cold     bool   // the servers are new

	Topology string
	Servers  []string // with Sentinel, the sentinels
	Replicas int      // see redisarbiter.Options
	Observed bool     // its ObserverClock
	All      int      // its AllReplicas
	Seeds    []string // see coord.Cluster

	Times times
	Keys  []string // that all clients lock and unlock all the time
	Slow  []string // that all clients hold for long
	Keep  []string // that this node holds until they are lost
	Rest  span     // between two locks of a client
	Share float64  // of all locks those that are for reading, or permits; 0: none, and no client locks several keys
}

// times are the library's, by the names of coord.Options.
type times struct {
	TTL, Grace, Keepalive, Debounce, CallTimeout, Takeover time.Duration
	Hurried                                                bool // Margin and RenewEvery are short
}

func (t times) renewEvery() time.Duration {
	if t.Hurried {
		return t.TTL / 10
	}
	return t.TTL / 4
}

func (t times) margin() time.Duration {
	if t.Hurried {
		return t.TTL / 20
	}
	return t.TTL / 10
}

type span struct{ From, To time.Duration }

// together is how many keys a client locks that locks several.
const together = 3

// partitions is few, so that every node's death concerns every client.
const (
	partitions = 16
	chaosSpace = "chaos"
	masterName = "chaos"
)

// client returns a client of the servers, set as README says.
func (j *job) client() redis.UniversalClient {
	switch j.Topology {
	case "sentinel":
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: masterName, SentinelAddrs: j.Servers, ContextTimeoutEnabled: true})
	case "cluster":
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: j.Servers, ContextTimeoutEnabled: true})
	}
	return redis.NewClient(&redis.Options{Addr: j.Servers[0], ContextTimeoutEnabled: true})
}

func (j *job) options() *coord.Options {
	return &coord.Options{
		Namespace: chaosSpace, Partitions: partitions,
		SessionTTL: j.Times.TTL, RenewEvery: j.Times.renewEvery(), Margin: j.Times.margin(), Grace: j.Times.Grace,
		CallTimeout: j.Times.CallTimeout,
		Cluster: &coord.Cluster{Membership: gossip.Start, Gossip: j.IP + ":7946", Peer: j.IP + ":7947", Keepalive: j.Times.Keepalive,
			Debounce: j.Times.Debounce, Takeover: j.Times.Takeover, Seeds: j.Seeds},
		StartUnavailable: true,
		// who guards whom, too
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

// node is a process that locks.
type node struct {
	job   job
	c     *coord.Coordinator
	out   *writer
	watch stall.Watch
}

// runNode is main of a node's process. It ends in order when its standard input does.
func runNode(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	if j.Mutant != "" {
		if err := takeOut(j.Mutant); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(j.Events, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	n := &node{job: j, out: &writer{node: j.Node, life: j.Life, f: f}}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		stop()
	}()
	go showGoroutines()
	go n.watch.Run(func(d time.Duration) { slog.Warn("this process was stopped", "for", d) })
	alone := runtime.NumGoroutine()
	client := j.client()
	n.c, err = coord.New(context.Background(), redisarbiter.New(client, &redisarbiter.Options{ColdStart: j.Cold, Replicas: j.Replicas, ObserverClock: j.Observed, AllReplicas: j.All}), j.options())
	if err != nil {
		return errors.Join(err, client.Close())
	}
	err = errors.Join(n.out.write(event{Op: opReady}), n.work(ctx))
	closing, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	closed := n.c.Close(closing)
	err = errors.Join(err, client.Close())
	e := event{Op: opClosed, State: n.state()}
	e.State.Goroutines = settled(alone)
	if closed != nil {
		e.Text = closed.Error()
	}
	return errors.Join(err, n.out.write(e))
}

// showGoroutines logs the goroutines, grouped by stack, whenever the process gets SIGUSR1.
func showGoroutines() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	for range asked {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	}
}

// settled returns how many goroutines there are more than there were, when those that end have
// ended, and shows them. (A probe of the gossip outlives it; the Redis client's attempts to connect
// go on for some times 5 s, where no server answers.)
func settled(before int) int {
	for end := time.Now().Add(15 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	left := max(0, runtime.NumGoroutine()-before)
	if left > 0 {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	}
	return left
}

// work runs the clients until ctx ends or one has failed, which none may.
func (n *node) work(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var clients sync.WaitGroup
	id := 0
	start := func(key string, way pace) {
		id++
		c := &client{n: n, id: id, key: key, pace: way}
		clients.Go(func() {
			if err := c.run(ctx); err != nil {
				stop(fmt.Errorf("client %d of %s: %w", c.id, n.job.Node, err))
			}
		})
	}
	for _, k := range n.job.Keys {
		start(k, brief)
	}
	for _, k := range n.job.Slow {
		start(k, slow)
	}
	for _, k := range n.job.Keep {
		start(k, forever)
	}
	start("", fleeting)
	if n.job.Share > 0 && len(n.job.Keys) >= together {
		s := &several{n: n}
		for range together {
			id++
			s.each = append(s.each, &client{n: n, id: id, pace: brief})
		}
		clients.Go(func() {
			if err := s.run(ctx); err != nil {
				stop(fmt.Errorf("the client of several keys of %s: %w", n.job.Node, err))
			}
		})
	}
	clients.Go(func() {
		for sleep(ctx, 200*time.Millisecond) {
			if err := n.out.write(event{Op: opState, State: n.state()}); err != nil {
				stop(err)
			}
		}
	})
	clients.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (n *node) state() *state {
	s := n.c.Stats()
	x := &state{Session: s.Session, Owned: s.Owned, Goroutines: busyGoroutines(), RSS: resident(), Stalled: int64(n.watch.Sum()),
		Lost: make(map[string]uint64), Granted: make(map[string]uint64)}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	x.Heap = m.HeapAlloc
	for _, o := range n.c.Nodes() {
		if o.Linked {
			x.Linked++
		}
	}
	for cause, count := range s.Lost {
		x.Lost[cause.String()] = count
	}
	for path, count := range s.Granted {
		x.Granted[path.String()] = count
	}
	return x
}

// busyGoroutines counts goroutines, without those that wait for work in a pool: once there was much
// to do at once, up to 64 do.
func busyGoroutines() (n int) {
	var b strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
	for group := range strings.SplitSeq(b.String(), "\n\n") {
		head, stack, _ := strings.Cut(group, "\n#")
		top, _, _ := strings.Cut(stack, "\n")
		if strings.Contains(top, "workers.(*Pool).work+") {
			continue
		}
		if i := strings.LastIndex(head, "\n"); i >= 0 { // the title of the profile
			head = head[i+1:]
		}
		count, _, _ := strings.Cut(head, " ")
		m, _ := strconv.Atoi(count)
		n += m
	}
	return n
}

// resident returns how much memory the process has.
func resident() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(fields[1], 10, 64)
	return pages * uint64(os.Getpagesize())
}

// sleep reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
