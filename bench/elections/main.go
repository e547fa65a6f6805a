// Command elections measures how long a hand-over of leadership between processes takes, by turns:
// package election over Redis, key by key and in a cluster; etcd's concurrency.Election; and
// client-go's leaderelection with its recommended times. Three candidates of each side run. The
// leader gets SIGTERM, and the time until the next one leads is taken.
//
// client-go's Lease is a key of etcd, written if its revision is the one that was read. The API
// server of Kubernetes does the same with it, but here no server is in between.
//
//	make elections            # needs redis-server and etcd (apt install redis-server etcd-server)
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/reexec"
)

// sides are the compared implementations.
var sides = []struct {
	name  string
	redis bool // its server is Redis, and not etcd
	run   func(ctx context.Context, addr string, tell teller) error
}{
	{"Holdfast, key by key", true, keyByKey},
	{"Holdfast, in a cluster", true, inCluster},
	{"etcd `concurrency.Election`", false, etcd},
	{"client-go `leaderelection`", false, clientgo},
}

// A teller tells the command the state of a candidate: that it waits, leads, and was told to stop.
type teller struct{ waits, leads, told func() }

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	if text := os.Getenv(candidateEnv); text != "" {
		return candidate(text)
	}
	turns := flag.Int("turns", 100, "how many hand-overs of each")
	only := flag.String("only", "", "the sides with this in their name")
	pause := flag.Duration("pause", retryPeriod, "a random share of this is between the last candidate's first attempt and SIGTERM")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return compare(ctx, *only, *turns, *pause)
}

// candidate campaigns until SIGTERM, or until its parent is gone. It prints its state on stdout.
func candidate(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	ctx, stop := reexec.Told()
	defer stop()
	say := func(what string) func() {
		return func() { fmt.Println(what, time.Now().UnixNano()) }
	}
	return sides[o.Side].run(ctx, o.Addr, teller{say("waits"), say("leads"), say("told")})
}

// compare starts the servers, and has the sides take turns.
func compare(ctx context.Context, only string, turns int, pause time.Duration) (err error) {
	dir, err := os.MkdirTemp("", "elections-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	redis, err := redistest.New(dir)
	if err != nil {
		return err
	}
	defer redis.Kill()
	etcdAddr, end, err := startEtcd(dir)
	if err != nil {
		return err
	}
	defer end()
	var races []*race
	for i, side := range sides {
		if !strings.Contains(side.name, only) {
			continue
		}
		addr := etcdAddr
		if side.redis {
			addr = redis.Addr
		}
		r := newRace(ctx, i, addr)
		defer func() { err = errors.Join(err, r.end()) }()
		races = append(races, r)
		if err := r.begin(); err != nil {
			return fmt.Errorf("%s: %w", side.name, err)
		}
	}
	for range turns {
		for _, r := range races {
			if err := r.turn(ctx, pause); err != nil {
				return fmt.Errorf("%s: %w", sides[r.Side].name, err)
			}
		}
	}
	fmt.Printf("| %d hand-overs each | p50 | p99 | longest | over 100 ms |\n| --- | --- | --- | --- | --- |\n", turns)
	for _, r := range races {
		slices.Sort(r.took)
		over := 0
		for _, took := range r.took {
			if took > 100*time.Millisecond {
				over++
			}
		}
		fmt.Printf("| %s | %v | %v | %v | %d |\n", sides[r.Side].name, r.took[len(r.took)/2].Round(time.Millisecond),
			r.took[(len(r.took)*99-1)/100].Round(time.Millisecond), r.took[len(r.took)-1].Round(time.Millisecond), over)
	}
	return nil
}
