// Command member is a node of a rolling upgrade: it locks keys for a while, and prints what came of
// it. Its source is also compiled at older commits.
//
//	member ADDRESS-OF-REDIS DURATION NAME [SESSION-TTL]
//
// With a SESSION-TTL it says "ready" when it may lock, ends also when its standard input does, and
// holds a key of its own, "held-NAME", until then: to lose it is a failure.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/gossip"
)

// result is what a member prints.
type result struct {
	Locks, Failed, Overlaps int
	Linked                  int // other nodes with a stream to this one, at most
}

const keys, callers = 40, 4

// member locks keys in turn. While it has one, it is alone in a counter at Redis.
type member struct {
	client *redis.Client
	locks  *coord.Coordinator

	mu sync.Mutex // protects r
	r  result
}

func (m *member) one(ctx context.Context, key string) {
	in, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	l, err := m.locks.Lock(in, key)
	if err != nil {
		log.Print(err)
		m.count(func(r *result) { r.Failed++ })
		return
	}
	n, err := m.client.Incr(ctx, "inside:"+key).Result()
	if err == nil {
		err = m.client.Decr(ctx, "inside:"+key).Err()
	}
	unlocked := l.Unlock()
	m.count(func(r *result) {
		r.Locks++
		if n != 1 {
			r.Overlaps++
		}
		if err != nil || unlocked != nil {
			log.Print(err, unlocked)
			r.Failed++
		}
	})
}

func (m *member) count(f func(*result)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.r)
}

// looks looks which nodes have a stream to this one. Others may end before this one does.
func (m *member) looks() {
	linked := 0
	for _, n := range m.locks.Nodes() {
		if n.Linked {
			linked++
		}
	}
	m.count(func(r *result) { r.Linked = max(r.Linked, linked) })
}

func run(addr, lasts, name, ttl string) error {
	d, err := time.ParseDuration(lasts)
	if err != nil {
		return err
	}
	session, err := time.ParseDuration(ttl)
	if err != nil {
		return err
	}
	ctx := context.Background()
	m := member{client: redis.NewClient(&redis.Options{Addr: addr})}
	cluster := &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0"}
	if session > 0 {
		cluster.Takeover = -1 // a busy machine stands still for longer than the default
	}
	starting, cancel := context.WithTimeout(ctx, time.Minute) // more than the default: a first process with a longer Grace waits for the others
	defer cancel()
	m.locks, err = coord.New(starting, redisarbiter.New(m.client, &redisarbiter.Options{ColdStart: true}), &coord.Options{
		Namespace: "rolling", Partitions: 32, Name: name, SessionTTL: session,
		Cluster: cluster,
	})
	if err != nil {
		return err
	}
	var held coord.Lock
	if session > 0 {
		if held, err = m.locks.Lock(ctx, "held-"+name); err != nil {
			return err
		}
		fmt.Println("ready")
	}
	working, stop := context.WithTimeout(ctx, d)
	defer stop()
	if session > 0 {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			stop()
		}()
	}
	var work sync.WaitGroup
	for c := range callers {
		work.Go(func() {
			for i := c; working.Err() == nil; i++ {
				m.one(ctx, fmt.Sprint("key-", i%keys))
				if session > 0 {
					time.Sleep(time.Millisecond) // the test runs beside others
				}
			}
		})
	}
	work.Go(func() {
		for ; working.Err() == nil; time.Sleep(100 * time.Millisecond) {
			m.looks()
		}
	})
	work.Wait()
	if session > 0 {
		if err := held.Unlock(); err != nil {
			log.Print(err)
			m.r.Failed++
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(m.r); err != nil {
		return err
	}
	ending, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return m.locks.Close(ending)
}

func main() {
	ttl := "0s"
	switch len(os.Args) {
	case 4:
	case 5:
		ttl = os.Args[4]
	default:
		log.Fatal("member ADDRESS-OF-REDIS DURATION NAME [SESSION-TTL]")
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], ttl); err != nil {
		log.Fatal(err)
	}
}
