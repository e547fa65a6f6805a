//go:build unix

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/reexec"
)

// nodeVariable tells a process that it is a node, and which one.
const nodeVariable = "HOLDFAST_HOLDS_NODE"

const namespace = "holds"

// nodeConfig is the parameters of a node's process.
type nodeConfig struct {
	Name        string
	Redis       string // file with the address of the present primary
	Partitions  int
	TTL         time.Duration
	Renew       time.Duration // Options.RenewEvery
	Takeover    time.Duration // Cluster.Takeover
	Unwatched   bool          // Cluster.Unwatched
	AllReplicas bool          // redisarbiter.Options.AllReplicas
	Log         bool
	Gossip      string  // Cluster.Gossip; empty: any port of 127.0.0.1
	Peer        string  // Cluster.Peer
	Observed    bool    // notes when it has partitions
	Cores       float64 // of a control group; 0: no limit
	Alone       bool    // without a cluster
}

// order is an order to a node. It answers each by a report.
type order struct {
	Do       string        // take, state, settle, try, unlock, leave; of kills: work, worst, owned, probe, guarded; of restarts: passage; of guarantees: await
	From, To int           // take, try: numbers of keys
	Step     int           // try: every so many
	Nodes    int           // settle, guarded; work: workers
	Name     string        // owned: of a node
	Keys     []int         // probe
	Leave    bool          // passage: before
	Within   time.Duration // await
}

// report is a node's answer.
type report struct {
	Err      string
	Held     int // locks in use
	Owned    int // partitions
	Lost     map[string]uint64
	Sessions uint64
	Calls    map[string]uint64 // of the arbiter
	Failed   map[string]uint64
	Free     int // try: keys that were free; unlock: locks that turned out to be lost
	Keys     []int
	Waits    []float64 // probe, await: in milliseconds, as Wait and Pause
	Wait     float64   // worst: the longest of a worker
	Pause    float64   // worst: the longest time in which no worker got a lock

	Granted map[string]uint64 // passage, as the fields below: since the last time
	Errors  uint64            // of workers
	Trouble string            // the first of them
	Tenures []tenure
}

type node struct {
	c     *coord.Coordinator
	cfg   nodeConfig
	locks []coord.Lock
	load  load
	seen  *observed
	told  map[string]uint64 // Granted, in all
}

func keyOf(i int) string { return fmt.Sprint("hold/", i) }

// runNode is main of a node. It ends with its standard input.
func runNode(text string) error {
	var cfg nodeConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{
		Addr: cfg.Redis, ContextTimeoutEnabled: true, PoolSize: 64,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			addr, err := os.ReadFile(cfg.Redis)
			if err != nil {
				return nil, err
			}
			var d net.Dialer
			return d.DialContext(ctx, "tcp", string(addr))
		},
	})
	defer client.Close()
	o := &coord.Options{
		Namespace: namespace, Name: strings.ReplaceAll(cfg.Name, " ", "-"), Partitions: cfg.Partitions, SessionTTL: cfg.TTL, RenewEvery: cfg.Renew,
		Cluster: &coord.Cluster{Membership: gossip.Start, Gossip: cmp.Or(cfg.Gossip, "127.0.0.1:0"), Peer: cfg.Peer, Takeover: cfg.Takeover, Unwatched: cfg.Unwatched},
	}
	if cfg.Alone {
		o.Cluster = nil
	}
	if cfg.Log {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", cfg.Name)
	}
	n := &node{cfg: cfg}
	var arbiter fallback.Arbiter = redisarbiter.New(client, setup{AllReplicas: cfg.AllReplicas}.redisOptions())
	if cfg.Observed {
		n.seen = &observed{Arbiter: arbiter}
		arbiter = n.seen
	}
	c, err := coord.New(context.Background(), arbiter, o)
	if err != nil {
		return err
	}
	n.c = c
	return tasks.Serve(reexec.NewLine(os.Stdin, os.Stdout), n, time.Minute)
}

var tasks reexec.Tasks[*node]

// followTask is the only task: an order.
var followTask = reexec.Add(&tasks, "follow", func(ctx context.Context, n *node, x order) (report, error) { return n.follow(ctx, x), nil })

func (n *node) follow(ctx context.Context, x order) (r report) {
	var err error
	switch x.Do {
	case "take":
		err = n.take(ctx, x.From, x.To)
	case "settle":
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		err = n.c.Settled(ctx, x.Nodes)
		cancel()
	case "try":
		r.Free, err = n.try(ctx, x)
	case "unlock":
		for _, l := range n.locks {
			if l.Unlock() != nil {
				r.Free++
			}
		}
		n.locks = nil
	case "work":
		n.work(ctx, x.To, x.Nodes)
	case "worst":
		r.Wait, r.Pause = n.load.worst()
	case "owned":
		r.Keys = n.owned(strings.ReplaceAll(x.Name, " ", "-"), x.To)
	case "probe":
		r.Waits, err = n.probe(ctx, x.Keys)
	case "await":
		r.Waits = n.await(ctx, x)
	case "guarded":
		err = n.guarded(ctx, x.Nodes, n.cfg.Takeover > 0 || n.cfg.Takeover == 0 && n.cfg.TTL > 3*time.Second)
	case "leave":
		err = n.leave(ctx)
	case "passage":
		if x.Leave {
			err = n.leave(ctx)
		}
		n.passage(&r)
	}
	if err != nil {
		r.Err = err.Error()
	}
	s := n.c.Stats()
	r.Held, r.Owned, r.Sessions = s.Locked, s.Owned, s.Sessions
	r.Lost, r.Calls, r.Failed = named(s.Lost), named(s.Calls), named(s.Failed)
	return r
}

func (n *node) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return n.c.Close(ctx)
}

// passage reports the grants, and this node's partitions, since the last time.
func (n *node) passage(r *report) {
	all := named(n.c.Stats().Granted)
	r.Granted = make(map[string]uint64)
	for path, g := range all {
		r.Granted[path] = g - n.told[path]
	}
	n.told = all
	r.Errors, r.Trouble = n.load.errors()
	r.Wait, r.Pause = n.load.worst()
	if n.seen != nil {
		r.Tenures = n.seen.take()
	}
}

func named[K interface {
	comparable
	fmt.Stringer
}](m map[K]uint64) map[string]uint64 {
	to := make(map[string]uint64)
	for k, v := range m {
		to[k.String()] = v
	}
	return to
}

// takers is how many goroutines take locks at the same time.
const takers = 256

func (n *node) take(ctx context.Context, from, to int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	n.locks = make([]coord.Lock, to-from)
	var next atomic.Int64
	var work sync.WaitGroup
	for range takers {
		work.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(n.locks) {
					return
				}
				l, err := n.c.Lock(ctx, keyOf(from+i))
				if err != nil {
					cancel(err)
					return
				}
				n.locks[i] = l
			}
		})
	}
	work.Wait()
	return context.Cause(ctx)
}

// await locks keys at the same time, and returns how long each took that it had in time, in
// milliseconds.
func (n *node) await(ctx context.Context, x order) (waits []float64) {
	ctx, cancel := context.WithTimeout(ctx, x.Within)
	defer cancel()
	var keys []string
	for i := x.From; i < x.To; i++ {
		keys = append(keys, keyOf(i))
	}
	all, errs := n.lockAll(ctx, keys)
	for i, err := range errs {
		if err == nil {
			waits = append(waits, all[i])
		}
	}
	return waits
}

// try returns how many of another node's keys were free. A key that is unavailable is tried again,
// for a minute in all.
func (n *node) try(ctx context.Context, x order) (free int, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for i := x.From; i < x.To; i += x.Step {
		l, err := n.c.TryLock(ctx, keyOf(i))
		for errors.Is(err, coord.ErrUnavailable) && ctx.Err() == nil {
			time.Sleep(100 * time.Millisecond)
			l, err = n.c.TryLock(ctx, keyOf(i))
		}
		switch {
		case err == nil:
			free++
			_ = l.Unlock()
		case !errors.Is(err, coord.ErrLocked):
			return free, err
		}
	}
	return free, nil
}
