//go:build linux

// Package agent runs the lab's commands in a program of the lab, with the coordinator that README's
// code has made there: a command per line of standard input, an answer per line of standard output.
package agent

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
)

// ClusterVariable is the environment variable with the Addresses.
const ClusterVariable = "HOLDFAST_LAB_CLUSTER"

// Addresses are the options that the environment has, as JSON: of a cluster, if nothing else
// is said.
type Addresses struct {
	Gossip, GossipAdvertise, Peer, PeerAdvertise string

	Seeds []string

	AllReplicas int // of the arbiter's options
}

func addresses() (a Addresses) {
	if err := json.Unmarshal([]byte(os.Getenv(ClusterVariable)), &a); err != nil {
		panic(err)
	}
	return a
}

// Redis returns the arbiter's options that the environment has, nil for the zero value.
func Redis() *redisarbiter.Options {
	if n := addresses().AllReplicas; n > 0 {
		return &redisarbiter.Options{AllReplicas: n}
	}
	return nil
}

// Options returns the options that the environment has, with a logger that writes records as lines
// of standard error.
func Options() *coord.Options {
	a := addresses()
	return &coord.Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)), Cluster: &coord.Cluster{
		Gossip: a.Gossip, GossipAdvertise: a.GossipAdvertise, Peer: a.Peer, PeerAdvertise: a.PeerAdvertise, Seeds: a.Seeds,
	}}
}

// A Command is a command of the lab.
type Command struct {
	Op    string        // state, settled, work or end
	Nodes int           // of settled
	Limit time.Duration // of settled; of work: for how long
	Keys  []string      // of work: each has a goroutine that locks it again and again
}

// An Answer is the result of a command.
type Answer struct {
	Nodes []coord.NodeInfo
	Owned int               // partitions
	Paths map[string]uint64 // how many locks were granted in which way
	Took  time.Duration     // the command; of work: the longest wait for a lock
	Err   string            // of settled and work
	Holds []Hold            // of work
	Units int               // in stock
}

// A Hold is a lock that was certainly in force from one moment to another one of the machine's
// monotonic clock.
type Hold struct {
	Key      string
	Fence    uint64
	From, To int64
	Local    bool // this node should own the key
}

// Serve answers until it is told to end, or ctx or the input ends.
func Serve(ctx context.Context, locks *coord.Coordinator, db *sql.DB) error {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- in.Text()
		}
	}()
	out := json.NewEncoder(os.Stdout)
	for {
		var line string
		var ok bool
		select {
		case line, ok = <-lines:
		case <-ctx.Done():
		}
		if !ok {
			return nil
		}
		var c Command
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return err
		}
		if c.Op == "end" {
			return nil
		}
		a := do(ctx, locks, c)
		if err := db.QueryRowContext(ctx, "SELECT units FROM stock").Scan(&a.Units); err != nil {
			return err
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

func do(ctx context.Context, locks *coord.Coordinator, c Command) Answer {
	var a Answer
	begun := time.Now()
	limited, cancel := context.WithTimeout(ctx, c.Limit)
	defer cancel()
	switch c.Op {
	case "state":
	case "settled":
		if err := locks.Settled(limited, c.Nodes); err != nil {
			a.Err = err.Error()
		}
		a.Took = time.Since(begun)
	case "work":
		a = work(ctx, limited, locks, c.Keys)
	default:
		a.Err = fmt.Sprintf("there is no command %q", c.Op)
	}
	a.Nodes = locks.Nodes()
	s := locks.Stats()
	a.Owned, a.Paths = s.Owned, make(map[string]uint64)
	for path, n := range s.Granted {
		a.Paths[path.String()] = n
	}
	return a
}

// work locks each key until limited ends. A lock that was asked for before is waited for until
// ctx ends.
func work(ctx, limited context.Context, locks *coord.Coordinator, keys []string) (a Answer) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, key := range keys {
		all.Go(func() {
			for limited.Err() == nil {
				asked := time.Now()
				l, err := locks.Lock(ctx, key)
				waited := time.Since(asked)
				if err != nil {
					mu.Lock()
					a.Err = err.Error()
					mu.Unlock()
					return
				}
				h := Hold{Key: key, Fence: uint64(l.Fence()), From: now()}
				owner, ok := locks.Owner(key)
				h.Local = ok && owner.Self
				time.Sleep(2 * time.Millisecond)
				h.To = now()
				lost := l.Unlock()
				mu.Lock()
				if lost != nil {
					a.Err = lost.Error()
				}
				a.Holds = append(a.Holds, h)
				a.Took = max(a.Took, waited)
				mu.Unlock()
				time.Sleep(3 * time.Millisecond)
			}
		})
	}
	all.Wait()
	return a
}

// now is the same clock in all processes of a machine.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}
