//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/lan"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/reexec"
)

// servers are the arbiter: Redis servers, and sentinels, each on a host of its own.
type servers struct {
	topology  string
	data      []*dataServer
	sentinels []*sentinel
	addrs     []string // for the nodes
}

type dataServer struct {
	*redistest.Server
	host  *lan.Host
	dir   string
	clock redistest.Clock // empty: it has the machine's
}

type sentinel struct {
	host *lan.Host
	addr string
	p    *reexec.Process
}

// Names of hosts, by topology.
var serverNames = map[string][]string{
	"single":   {"r1"},
	"sentinel": {"r1", "r2", "r3", "s1", "s2", "s3"},
	"cluster":  {"r1", "r2", "r3", "r4", "r5", "r6"},
}

// nodeTimeout is for how long a primary of a Redis Cluster must be silent until it is replaced.
// Primaries there stop serving, too, when they have not seen the majority for that long.
const nodeTimeout = 2 * time.Second

// downAfter is the same with Sentinel. A primary that is cut off goes on for up to 3 s there, by
// its settings: it may do so for delta after another one was promoted.
func (t times) downAfter() time.Duration {
	if t.Hurried {
		return 2500 * time.Millisecond
	}
	return 1500 * time.Millisecond
}

const redisPort = ":6379"

// startServers starts the servers of the topology. stop must be called, also after an error.
func startServers(ctx context.Context, n *lan.Network, cfg config, dir string) (*servers, error) {
	topology := cfg.Topology
	s := &servers{topology: topology}
	library := ""
	if topology == "single" { // the clocks of several must not differ by more than M
		library, _ = redistest.ClockLibrary(dir) // without it the server has the machine's clock
	}
	for _, name := range serverNames[topology] {
		h := n.Host(name)
		home := filepath.Join(dir, name)
		if err := os.Mkdir(home, 0o700); err != nil {
			return s, err
		}
		if strings.HasPrefix(name, "s") {
			s.sentinels = append(s.sentinels, &sentinel{host: h, addr: h.Addr + ":26379"})
			continue
		}
		d := &dataServer{host: h, dir: home}
		s.data = append(s.data, d)
		place := redistest.Place{Addr: h.Addr + redisPort, Command: h.In()}
		if library != "" {
			var err error
			if d.clock, err = redistest.NewClock(home); err != nil {
				return s, err
			}
			place.Env = d.clock.Env(library)
		}
		var err error
		if d.Server, err = redistest.NewAt(place, home, arguments(topology, cfg.Defaults, cfg.All)...); err != nil {
			return s, err
		}
	}
	switch topology {
	case "sentinel":
		return s, s.startSentinels(ctx, dir, cfg.Times.downAfter())
	case "cluster":
		return s, s.formCluster(ctx)
	}
	s.addrs = []string{s.data[0].Addr}
	return s, nil
}

// arguments are those of a data server. defaults leaves Redis's replication as it is: then a
// deposed primary goes on acknowledging, and two holders are to be expected.
func arguments(topology string, defaults, all bool) []string {
	args := []string{"--appendonly", "yes", "--appendfsync", "everysec", "--repl-diskless-sync-delay", "0"}
	if all {
		args[3] = "always"
	}
	switch {
	case topology == "sentinel" && !defaults:
		// A primary that was deposed while it could not be reached does not know. Within Q - T - M
		// it has to stop, and it does if it misses its replicas. There are two, so that after a
		// failover there is one.
		args = append(args, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "1", "--repl-ping-replica-period", "1")
	case topology == "cluster":
		args = append(args, "--cluster-enabled", "yes", "--cluster-node-timeout", fmt.Sprint(nodeTimeout.Milliseconds()),
			"--cluster-replica-validity-factor", "0")
	}
	return args
}

// wipe kills the server and removes its data, but not its knowledge of the cluster's members.
func (d *dataServer) wipe() error {
	d.Kill()
	return errors.Join(os.RemoveAll(filepath.Join(d.dir, "appendonlydir")), os.RemoveAll(filepath.Join(d.dir, "dump.rdb")))
}

func (s *servers) startSentinels(ctx context.Context, dir string, downAfter time.Duration) error {
	for _, d := range s.data[1:] {
		if err := d.Replicate(ctx, s.data[0].Server); err != nil {
			return err
		}
	}
	for _, x := range s.sentinels {
		conf := filepath.Join(dir, x.host.Name, "sentinel.conf")
		text := fmt.Sprintf("port 26379\nbind %s\nprotected-mode no\ndir %s\nsentinel monitor %s %s 6379 2\n"+
			"sentinel down-after-milliseconds %[3]s %[5]d\nsentinel failover-timeout %[3]s 6000\n",
			x.host.Addr, filepath.Join(dir, x.host.Name), masterName, s.data[0].host.Addr, downAfter.Milliseconds())
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			return err
		}
		var err error
		args := append([]string{"ip"}, append(x.host.Command(), "redis-server", conf, "--sentinel")...)
		if x.p, err = reexec.Run(filepath.Join(dir, x.host.Name+".log"), nil, args...); err != nil {
			return err
		}
		s.addrs = append(s.addrs, x.addr)
	}
	return s.settled(ctx)
}

func (s *servers) formCluster(ctx context.Context) error {
	var primaries []*redistest.Server
	for _, d := range s.data[:3] {
		primaries = append(primaries, d.Server)
	}
	if err := redistest.FormCluster(ctx, primaries); err != nil {
		return err
	}
	for i, d := range s.data {
		s.addrs = append(s.addrs, d.Addr)
		if i < 3 {
			continue
		}
		of := s.data[i-3]
		err := await(ctx, "a replica that knows its primary", func() error {
			return d.do(func(c *redis.Client) error {
				if err := c.ClusterMeet(ctx, of.host.Addr, "6379").Err(); err != nil {
					return err
				}
				var id string
				if err := of.do(func(p *redis.Client) (err error) { id, err = p.ClusterMyID(ctx).Result(); return err }); err != nil {
					return err
				}
				return c.ClusterReplicate(ctx, id).Err()
			})
		})
		if err != nil {
			return err
		}
	}
	return s.settled(ctx)
}

// do calls f with a client of this very server.
func (d *dataServer) do(f func(c *redis.Client) error) error {
	c := redis.NewClient(&redis.Options{Addr: d.Addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: time.Second})
	defer c.Close()
	return f(c)
}

// isPrimary reports whether the server says that it is one.
func (d *dataServer) isPrimary(ctx context.Context) bool {
	var info string
	err := d.do(func(c *redis.Client) (err error) { info, err = c.Info(ctx, "replication").Result(); return err })
	return err == nil && strings.Contains(info, "role:master")
}

// primaries returns the servers that clients are sent to.
func (s *servers) primaries(ctx context.Context) (all []*dataServer) {
	if s.topology == "sentinel" {
		if m := s.master(ctx); m != nil {
			all = append(all, m)
		}
		return all
	}
	for _, d := range s.data {
		if d.isPrimary(ctx) {
			all = append(all, d)
		}
	}
	return all
}

// linked reports whether the server is a replica with a link to its primary that is up.
func (d *dataServer) linked(ctx context.Context) bool {
	var info string
	err := d.do(func(c *redis.Client) (err error) { info, err = c.Info(ctx, "replication").Result(); return err })
	return err == nil && strings.Contains(info, "role:slave") && strings.Contains(info, "master_link_status:up")
}

// master returns the server that the sentinels send clients to, or nil.
func (s *servers) master(ctx context.Context) *dataServer {
	if len(s.sentinels) == 0 {
		return s.data[0]
	}
	for _, x := range s.sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: x.addr, MaxRetries: -1, DialTimeout: time.Second})
		addr, err := c.GetMasterAddrByName(ctx, masterName).Result()
		c.Close()
		if err != nil {
			continue
		}
		for _, d := range s.data {
			if d.host.Addr == addr[0] {
				return d
			}
		}
	}
	return nil
}

var errUnsettled = errors.New("not settled")

// settled waits until every server has its role, and every replica its primary.
func (s *servers) settled(ctx context.Context) error {
	return await(ctx, "the servers to settle", func() error {
		switch s.topology {
		case "sentinel":
			return s.sentinelsSettled(ctx)
		case "cluster":
			return s.clusterSettled(ctx)
		}
		return s.data[0].do(func(c *redis.Client) error { return c.Ping(ctx).Err() })
	})
}

func (s *servers) sentinelsSettled(ctx context.Context) error {
	m := s.master(ctx)
	if m == nil || !m.isPrimary(ctx) {
		return errors.New("no primary")
	}
	for _, d := range s.data {
		if d != m && !d.linked(ctx) {
			return fmt.Errorf("%s is not linked", d.host.Name)
		}
	}
	for _, x := range s.sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: x.addr, MaxRetries: -1, DialTimeout: time.Second})
		state, err := c.Master(ctx, masterName).Result()
		c.Close()
		if err != nil || state["flags"] != "master" || state["num-other-sentinels"] != "2" || state["num-slaves"] != "2" || state["ip"] != m.host.Addr {
			return fmt.Errorf("%s: %w: %v", x.host.Name, cmp.Or(err, errUnsettled), state)
		}
	}
	return nil
}

func (s *servers) clusterSettled(ctx context.Context) error {
	for _, d := range s.data {
		var info string
		err := d.do(func(c *redis.Client) (err error) { info, err = c.ClusterInfo(ctx).Result(); return err })
		if err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:6") {
			return fmt.Errorf("%s: %w: %s", d.host.Name, cmp.Or(err, errUnsettled), info)
		}
	}
	primaries := 0
	for _, d := range s.data {
		if d.isPrimary(ctx) {
			primaries++
		} else if !d.linked(ctx) {
			return fmt.Errorf("%s is not linked", d.host.Name)
		}
	}
	if primaries != 3 {
		return fmt.Errorf("%d primaries", primaries)
	}
	return nil
}

func (s *servers) stop() {
	for _, x := range s.sentinels {
		if x.p != nil {
			x.p.Kill()
		}
	}
	for _, d := range s.data {
		if d.Server != nil {
			d.Kill()
		}
	}
}

// await calls f until it returns nil or ctx ends.
func await(ctx context.Context, what string, f func() error) error {
	for {
		err := f()
		if err == nil {
			return nil
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return fmt.Errorf("waiting for %s: %w: %w", what, ctx.Err(), err)
		}
	}
}
