//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ownership lists the owners of the partitions at a moment, by the records: sessions.
type ownership struct {
	At       moment
	Sessions [partitions]string
	Primary  string // host; with a Redis Cluster empty
}

// census is the counts of the stored data at Redis.
type census struct {
	Keys     int // of any kind
	Sessions int
	Rows     int
}

// client returns a client of the servers for this process, which no cut affects.
func (s *servers) client() redis.UniversalClient {
	j := job{Topology: s.topology, Servers: s.addrs}
	return j.client()
}

// count takes the census, when all is well with the servers.
func (s *servers) count(ctx context.Context) (c census, err error) {
	client := s.client()
	defer client.Close()
	keys := []string{"{" + chaosSpace + ":s}"}
	for p := range partitions {
		keys = append(keys, part(p))
	}
	for _, key := range keys {
		fields, err := client.HKeys(ctx, key).Result()
		if err != nil {
			return c, err
		}
		for _, f := range fields {
			switch {
			case strings.HasPrefix(f, "s:"):
				c.Sessions++
			case strings.HasPrefix(f, "r:"):
				c.Rows++
			}
		}
	}
	for _, d := range s.data {
		if d.isPrimary(ctx) {
			err := d.do(func(x *redis.Client) error {
				n, err := x.DBSize(ctx).Result()
				c.Keys += int(n)
				return err
			})
			if err != nil {
				return c, err
			}
		}
	}
	return c, nil
}

func part(p int) string { return fmt.Sprintf("{%s:p%d}", chaosSpace, p) }

// sample looks at the records until ctx ends.
func (r *running) sample(ctx context.Context) {
	client := r.servers.client()
	defer client.Close()
	for sleep(ctx, 250*time.Millisecond) {
		o := ownership{At: now()}
		asking, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		if r.cfg.Topology != "cluster" {
			if m := r.servers.master(asking); m != nil {
				o.Primary = m.host.Name
			}
		}
		pipe := client.Pipeline()
		var records [partitions]*redis.StringCmd
		for p := range records {
			records[p] = pipe.HGet(asking, part(p), "m")
		}
		_, _ = pipe.Exec(asking) // a server that is away is seen as such
		cancel()
		for p, x := range records {
			if f := strings.SplitN(x.Val(), " ", 6); len(f) == 6 {
				o.Sessions[p] = f[5]
			}
		}
		r.owners = append(r.owners, o)
	}
}
