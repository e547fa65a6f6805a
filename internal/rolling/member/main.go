// Command member is a node of a rolling upgrade: it locks keys for a while, and prints what came of it.
// Its source is also compiled at older commits.
//
//	member ADDRESS-OF-REDIS DURATION NAME
package main

import (
	"context"
	"encoding/json"
	"fmt"
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
	Linked                  int // other nodes with a stream to this one, at the end
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

func run(addr, lasts, name string) error {
	d, err := time.ParseDuration(lasts)
	if err != nil {
		return err
	}
	ctx := context.Background()
	m := member{client: redis.NewClient(&redis.Options{Addr: addr})}
	m.locks, err = coord.New(ctx, redisarbiter.New(m.client, &redisarbiter.Options{ColdStart: true}), &coord.Options{
		Namespace: "rolling", Partitions: 32, Name: name,
		Cluster: &coord.Cluster{Membership: gossip.Start, Gossip: "127.0.0.1:0"},
	})
	if err != nil {
		return err
	}
	end := time.Now().Add(d)
	var work sync.WaitGroup
	for c := range callers {
		work.Go(func() {
			for i := c; time.Now().Before(end); i++ {
				m.one(ctx, fmt.Sprint("key-", i%keys))
			}
		})
	}
	work.Wait()
	for _, n := range m.locks.Nodes() {
		if n.Linked {
			m.r.Linked++
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(m.r); err != nil {
		return err
	}
	in, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return m.locks.Close(in)
}

func main() {
	if len(os.Args) != 4 {
		log.Fatal("member ADDRESS-OF-REDIS DURATION NAME")
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}
