//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/lan"
)

var replicated = []string{"sentinel", "cluster"}

var serverFaults = []fault{
	{name: "Redis killed, back with its data", kind: ofServers, weight: 3, commit: func(ctx context.Context, s *storm) error {
		return s.restartServer(ctx, "Redis killed, back with its data", false)
	}},
	{name: "Redis killed, back without data", kind: ofServers, weight: 3, commit: func(ctx context.Context, s *storm) error {
		return s.restartServer(ctx, "Redis killed, back without data", true)
	}},
	{name: "Redis stopped", kind: ofServers, weight: 3, commit: stopServer},
	{name: "Redis killed, replaced by a replica", kind: ofServers, weight: 3, topologies: replicated, commit: func(ctx context.Context, s *storm) error {
		return s.failover(ctx, "Redis killed, replaced by a replica", false)
	}},
	{name: "failover with lost writes", kind: ofServers, weight: 4, topologies: replicated, commit: func(ctx context.Context, s *storm) error {
		return s.failover(ctx, "failover with lost writes", true)
	}},
	{name: "primary cut off with nodes", kind: ofServers, weight: 3, topologies: replicated, commit: cutPrimaryOff},
	{name: primaryCutForLong, kind: ofServers, weight: 6, topologies: []string{"sentinel"}, asked: true, commit: cutPrimaryOffForLong},
	{name: "primary cut from replicas and sentinels", kind: ofServers, weight: 3, topologies: []string{"sentinel"}, commit: depose},
	{name: "ordered failover", kind: ofServers, weight: 2, topologies: replicated, commit: orderedFailover},
	{name: "Redis clock set back", kind: ofServers, weight: 2, topologies: []string{"single"}, commit: func(ctx context.Context, s *storm) error {
		return s.stepClock(ctx, "Redis clock set back", -s.pick(span{100 * time.Millisecond, 20 * time.Second}))
	}},
	{name: "Redis clock set forward, less than M", kind: ofServers, weight: 2, topologies: []string{"single"}, commit: func(ctx context.Context, s *storm) error {
		return s.stepClock(ctx, "Redis clock set forward, less than M", s.r.cfg.Times.margin()*3/4)
	}},
	{name: "Redis clock set forward by an hour", kind: ofServers, weight: 4, topologies: []string{"single"}, observed: true, commit: func(ctx context.Context, s *storm) error {
		return s.stepClock(ctx, "Redis clock set forward by an hour", time.Hour)
	}},
	{name: "Redis clock set back by an hour", kind: ofServers, weight: 4, topologies: []string{"single"}, observed: true, commit: func(ctx context.Context, s *storm) error {
		return s.stepClock(ctx, "Redis clock set back by an hour", -time.Hour)
	}},
}

// primary chooses a server that is one. On a busy machine an answer may be late, so it asks for a
// while.
func (s *storm) primary(ctx context.Context) (*dataServer, error) {
	asking, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var all []*dataServer
	err := await(asking, "a server that is primary", func() error {
		if all = s.r.servers.primaries(asking); len(all) == 0 {
			return errors.New("no primary")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all[s.intN(len(all))], nil
}

func (s *storm) restartServer(ctx context.Context, name string, empty bool) error {
	p, err := s.primary(ctx)
	if err != nil {
		return err
	}
	defer s.begin(name, []string{p.host.Name}, "")()
	p.Kill()
	if empty {
		if err := p.wipe(); err != nil {
			return err
		}
	}
	s.wait(ctx, span{0, 800 * time.Millisecond}) // before it is missed
	return p.Restart()
}

func stopServer(ctx context.Context, s *storm) error {
	p, err := s.primary(ctx)
	if err != nil {
		return err
	}
	defer s.begin("Redis stopped", []string{p.host.Name}, "")()
	_ = p.Signal(syscall.SIGSTOP)
	s.wait(ctx, s.some())
	return p.Signal(syscall.SIGCONT)
}

// failover kills a primary and waits until it is replaced, after it has lost its replicas for a
// while, or not.
func (s *storm) failover(ctx context.Context, name string, losing bool) error {
	p, err := s.primary(ctx)
	if err != nil {
		return err
	}
	defer s.begin(name, []string{p.host.Name}, "")()
	mend := func() error { return nil }
	if losing {
		if mend, err = s.r.net.Cut(lan.Both([]string{p.host.Name}, s.dataNames())); err != nil {
			return err
		}
		s.wait(ctx, span{300 * time.Millisecond, 1200 * time.Millisecond})
	}
	p.Kill()
	if err := mend(); err != nil {
		return err
	}
	replaced := s.awaitReplacement(ctx, p)
	s.wait(ctx, span{0, time.Second})
	return errors.Join(replaced, p.Restart())
}

// awaitReplacement waits until another server has taken over.
func (s *storm) awaitReplacement(ctx context.Context, old *dataServer) error {
	ctx, cancel := context.WithTimeout(ctx, 40*time.Second)
	defer cancel()
	return await(ctx, "a failover", func() error {
		n := 0
		for _, d := range s.r.servers.data {
			if d != old && d.isPrimary(ctx) {
				n++
			}
		}
		want := 1
		if s.r.servers.topology == "cluster" {
			want = 3
		}
		if n < want {
			return fmt.Errorf("%d primaries", n)
		}
		return nil
	})
}

func (s *storm) dataNames() []string {
	var names []string
	for _, d := range s.r.servers.data {
		names = append(names, d.host.Name)
	}
	return names
}

// cutPrimaryOff leaves a primary alone with some nodes: Jepsen calls that a partition with the
// primary in the minority.
func cutPrimaryOff(ctx context.Context, s *storm) error {
	p, err := s.primary(ctx)
	if err != nil {
		return err
	}
	nodes := s.shuffled(s.r.nodeNames())
	some, rest := nodes[:1+s.intN(2)], nodes[2:]
	side := append([]string{p.host.Name}, some...)
	for _, name := range s.r.serverNames() {
		if name != p.host.Name {
			rest = append(rest, name)
		}
	}
	return s.cutFor(ctx, "primary cut off with nodes", span{2 * time.Second, 2 * s.r.cfg.Times.TTL}, lan.Both(side, rest), side, "")
}

const primaryCutForLong = "primary cut off with nodes for long"

// cutPrimaryOffForLong is cutPrimaryOff for longer than a failover and Grace take. Then both sides
// grant if the primary that is cut off goes on acknowledging. With min-replicas-to-write or WAIT it
// does not.
func cutPrimaryOffForLong(ctx context.Context, s *storm) error {
	p, err := s.primary(ctx)
	if err != nil {
		return err
	}
	nodes := s.shuffled(s.r.nodeNames())
	side, rest := append([]string{p.host.Name}, nodes[:2]...), nodes[2:]
	for _, name := range s.r.serverNames() {
		if name != p.host.Name {
			rest = append(rest, name)
		}
	}
	least := s.r.cfg.Times.Grace + 4*s.r.cfg.Times.downAfter()
	return s.cutFor(ctx, primaryCutForLong, span{least, least + 3*s.r.cfg.Times.TTL}, lan.Both(side, rest), side, "")
}

// depose cuts the primary from its replicas and from sentinels, and not from nodes.
func depose(ctx context.Context, s *storm) error {
	p, err := s.primary(ctx)
	if err != nil {
		return err
	}
	side := []string{p.host.Name}
	return s.cutFor(ctx, "primary cut from replicas and sentinels", span{2 * time.Second, 2 * s.r.cfg.Times.TTL},
		lan.Both(side, s.r.serverNames()), side, "all nodes reach it")
}

// orderedFailover is one that an operator asks for.
func orderedFailover(ctx context.Context, s *storm) error {
	p, err := s.primary(ctx)
	if err != nil {
		return err
	}
	defer s.begin("ordered failover", []string{p.host.Name}, "")()
	if s.r.servers.topology == "sentinel" {
		x := s.r.servers.sentinels[s.intN(3)]
		c := redis.NewSentinelClient(&redis.Options{Addr: x.addr})
		defer c.Close()
		if err := c.Failover(ctx, masterName).Err(); err != nil {
			s.r.tell("  not done: %v", err) // it has just had one, or another fault is in the way
			return nil
		}
	} else if r := s.replicaOf(ctx, p); r == nil || r.do(func(c *redis.Client) error { return c.ClusterFailover(ctx).Err() }) != nil {
		s.r.tell("  not done")
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_ = await(ctx, "a failover", func() error {
		if p.isPrimary(ctx) {
			return errors.New("not yet")
		}
		return nil
	})
	return nil
}

// replicaOf returns a replica of a primary of a Redis Cluster, or nil.
func (s *storm) replicaOf(ctx context.Context, p *dataServer) *dataServer {
	for _, d := range s.r.servers.data {
		var info string
		err := d.do(func(c *redis.Client) (err error) { info, err = c.Info(ctx, "replication").Result(); return err })
		if err == nil && strings.Contains(info, "master_host:"+p.host.Addr+"\r") {
			return d
		}
	}
	return nil
}

// stepClock steps the server's clock, for good. Steps forward that follow each other within T would
// add up to more than M.
func (s *storm) stepClock(ctx context.Context, name string, by time.Duration) error {
	p := s.r.servers.data[0]
	if p.clock == "" {
		s.r.tell("  no C compiler: the clock stays")
		return nil
	}
	defer s.begin(name, []string{p.host.Name}, "%v", by.Round(time.Millisecond))()
	s.r.offset += by
	if err := p.clock.Set(s.r.offset); err != nil {
		return err
	}
	sleep(ctx, s.r.cfg.Times.TTL)
	return nil
}
