package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/gossip"
)

// A locker is the lock of one rung in one process. Its methods are called by many goroutines.
type locker interface {
	// Lock waits for key's lock until ctx ends; ctx does not limit how long it is held.
	Lock(ctx context.Context, key string) (hold, error)
	Close(ctx context.Context) error
}

// A hold is one key's lock while it is held. A coord.Lock is one.
type hold interface {
	Fence() coord.Fence // above that of every earlier hold of the key
	Context() context.Context
	Unlock() error
}

// A rung is one way to lock. To add one, add a row to rungs.
type rung struct {
	name   string // for -rungs
	title  string // for the table
	fenced bool   // its tokens rise: the database checks them
	hidden bool   // for tests: it breaks the rules
	looks  bool   // it is one of -catalogue
	shared bool   // it reads under a lock for reading
	open   func(client redis.UniversalClient, o order) (locker, error)
}

var rungs = []rung{
	{
		name:  "setnx",
		title: "SET NX PX",
		open: func(client redis.UniversalClient, o order) (locker, error) {
			return &setnx{client, o.Namespace, o.sessionTTL()}, nil
		},
	},
	{
		name:   "contender",
		title:  "one contender per process",
		fenced: true,
		open: func(client redis.UniversalClient, o order) (locker, error) {
			// The goroutines of a process queue here, so only one of them at a time asks Redis. But
			// each turn is a lock and an unlock there.
			return newHoldfast(client, o, coord.Handoff{MaxTurns: 1, Linger: -1}, nil)
		},
	},
	{
		name:   "handover",
		title:  "with hand-over",
		fenced: true,
		open: func(client redis.UniversalClient, o order) (locker, error) {
			// Once the process has the lock, several of its goroutines take turns under it.
			return newHoldfast(client, o, coord.Handoff{}, nil)
		},
	},
	{
		name:   "ring",
		title:  "ring",
		fenced: true,
		open:   openRing,
	},
	{
		name:   "lock",
		title:  "a lock for each look-up",
		fenced: true,
		looks:  true,
		open:   openRing,
	},
	{
		name:   "rlock",
		title:  "a read lock",
		fenced: true,
		looks:  true,
		shared: true,
		open:   openRing,
	},
	{
		name:   "none-read",
		title:  "no lock at all",
		hidden: true,
		looks:  true,
		shared: true,
		open: func(redis.UniversalClient, order) (locker, error) {
			return unlocked{}, nil
		},
	},
	{
		name:   "none",
		title:  "no lock at all",
		hidden: true,
		open: func(redis.UniversalClient, order) (locker, error) {
			return unlocked{}, nil
		},
	},
	{
		name:   "stuck",
		title:  "a token that stands still",
		fenced: true,
		hidden: true,
		open: func(client redis.UniversalClient, o order) (locker, error) {
			return stuck{&setnx{client, o.Namespace, o.sessionTTL()}}, nil
		},
	},
}

// openRing makes the processes share out the keys. Each grants its own from memory, to the others
// too. Redis is asked only when a process comes or goes.
func openRing(client redis.UniversalClient, o order) (locker, error) {
	c, err := newHoldfast(client, o, coord.Handoff{}, &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0"})
	if err == nil && !o.Late {
		// A program need not wait: until then its locks come from Redis. The table is to show the
		// time after that, but on a machine with too much else to do the sale begins all the same.
		ctx, cancel := context.WithTimeout(context.Background(), startTime/2)
		defer cancel()
		if err = c.Settled(ctx, o.Processes); ctx.Err() != nil {
			err = nil
		}
	}
	return c, err
}

// partitions are fewer than by default, because the embedded server is slow: it takes a millisecond
// for each.
const partitions = 127

// partitions are fewer still where FerretDB has them: it looks at all records to find some.
func (o order) partitions() int {
	if o.Arbiter == "mongodb" {
		return partitions / 4
	}
	return partitions
}

// arbiterConns is the number of connections of an arbiter on PostgreSQL in a process.
const arbiterConns = 5

// arbiterConns returns the number of the database's connections that the arbiters of all processes
// take.
func (o order) arbiterConns() int {
	if o.Arbiter == "postgres" {
		return arbiterConns * o.Processes
	}
	return 0
}

// newHoldfast makes the parts that a program needs to use Holdfast: an arbiter and a namespace.
func newHoldfast(client redis.UniversalClient, o order, limits coord.Handoff, cluster *coord.Cluster) (holdfast, error) {
	store, err := findArbiterStore(o.Arbiter)
	if err != nil {
		return holdfast{}, err
	}
	arbiter, end, err := store.open(client, o)
	if err != nil {
		return holdfast{}, err
	}
	c, err := coord.New(context.Background(), arbiter, &coord.Options{
		Namespace: o.Namespace, Handoff: limits, Cluster: cluster, Partitions: o.partitions(),
		SessionTTL: o.sessionTTL(), CallTimeout: o.sessionTTL() / 6,
	})
	return holdfast{c, end}, err
}

// holdfast makes a Coordinator a locker: its Lock returns a struct, and ours an interface.
type holdfast struct {
	*coord.Coordinator
	end func() error // closes the arbiter's client; nil: there is nothing to close
}

// Close implements locker.
func (h holdfast) Close(ctx context.Context) error {
	err := h.Coordinator.Close(ctx)
	if h.end != nil {
		err = errors.Join(err, h.end())
	}
	return err
}

func (h holdfast) Lock(ctx context.Context, key string) (hold, error) {
	return h.Coordinator.Lock(ctx, key)
}

// unlocked lets all callers in.
type unlocked struct{}

func (unlocked) Lock(ctx context.Context, _ string) (hold, error) { return freeHold{ctx}, nil }
func (unlocked) Close(context.Context) error                      { return nil }

type freeHold struct{ ctx context.Context }

func (freeHold) Fence() coord.Fence         { return 0 }
func (h freeHold) Context() context.Context { return context.WithoutCancel(h.ctx) }
func (freeHold) Unlock() error              { return nil }

// stuck excludes properly, but all its tokens are the same.
type stuck struct{ locker }

func (s stuck) Lock(ctx context.Context, key string) (hold, error) {
	h, err := s.locker.Lock(ctx, key)
	if err != nil {
		return nil, err
	}
	return stuckHold{h}, nil
}

type stuckHold struct{ hold }

func (stuckHold) Fence() coord.Fence { return 1 }

// publicRungs is the default of -rungs, for a sale or for a catalogue.
func publicRungs(looks bool) string {
	var names []string
	for _, r := range rungs {
		if !r.hidden && r.looks == looks {
			names = append(names, r.name)
		}
	}
	return strings.Join(names, ",")
}

// findRungs looks up a comma-separated list of names; each may be there once.
func findRungs(list string) ([]rung, error) {
	var found []rung
	for name := range strings.SplitSeq(list, ",") {
		same := func(r rung) bool { return r.name == strings.TrimSpace(name) }
		i := slices.IndexFunc(rungs, same)
		if i < 0 {
			return nil, fmt.Errorf("-rungs: no rung %q, only %s", strings.TrimSpace(name), publicRungs(false))
		}
		if slices.ContainsFunc(found, same) {
			return nil, fmt.Errorf("-rungs: %s is there twice", rungs[i].name)
		}
		found = append(found, rungs[i])
	}
	return found, nil
}
