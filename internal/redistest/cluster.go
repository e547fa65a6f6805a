package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/await"
)

// slots is the number of slots of a cluster.
const slots = 16384

// busOffset is how far the port of the cluster bus is above the server's.
const busOffset = 10000

// StartCluster starts n primaries that share the slots, without replicas, and waits until they
// agree. They are stopped when the test ends.
func StartCluster(t testing.TB, n int, args ...string) []*Server {
	t.Helper()
	args = append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "5000"}, args...)
	nodes := make([]*Server, n)
	for i := range nodes {
		nodes[i] = start(t, Place{}, freeClusterAddr, args)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := FormCluster(ctx, nodes); err != nil {
		t.Fatal(err)
	}
	return nodes
}

// ClusterClient returns a new client of a cluster, closed when the test ends.
func ClusterClient(t testing.TB, nodes []*Server) *redis.ClusterClient {
	o := &redis.ClusterOptions{}
	for _, s := range nodes {
		o.Addrs = append(o.Addrs, s.Addr)
	}
	c := redis.NewClusterClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// StartClusterNode starts a server that may join a cluster.
func StartClusterNode(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, Place{}, freeClusterAddr, append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "5000"}, args...))
}

// FollowInCluster makes a server of StartClusterNode the replica of a primary of a cluster, and
// waits until it follows.
func (s *Server) FollowInCluster(t testing.TB, primary *Server) {
	t.Helper()
	r := s.Client(t)
	if err := r.ClusterMeet(t.Context(), primary.host(), primary.Port()).Err(); err != nil {
		t.Fatal(err)
	}
	id := primary.Client(t).Do(t.Context(), "CLUSTER", "MYID").Val()
	await.Within(t, time.Minute, "the server is a replica", func() bool { return r.Do(t.Context(), "CLUSTER", "REPLICATE", id).Err() == nil })
	await.Within(t, time.Minute, "the replica follows", func() bool {
		return strings.Contains(r.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
}

// FormCluster makes servers that were started with --cluster-enabled yes the primaries of a
// cluster, and waits until they agree.
func FormCluster(ctx context.Context, nodes []*Server) error {
	n := len(nodes)
	for i, s := range nodes {
		if err := s.join(ctx, nodes[0], i+1, slots*i/n, slots*(i+1)/n-1); err != nil {
			return err
		}
	}
	return AwaitCluster(ctx, nodes)
}

// freeClusterAddr returns an address where the port of the bus is free, too.
func freeClusterAddr() (string, error) {
	for range 100 {
		addr, err := freeAddr()
		if err != nil {
			return "", err
		}
		_, text, _ := net.SplitHostPort(addr)
		port, _ := strconv.Atoi(text)
		if port+busOffset > 65535 {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+busOffset)))
		if err != nil {
			continue
		}
		_ = l.Close()
		return addr, nil
	}
	return "", errors.New("redistest: no pair of free ports")
}

// join gives the server its slots and introduces it to the first one.
func (s *Server) join(ctx context.Context, first *Server, epoch, from, to int) error {
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	if err := c.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", epoch).Err(); err != nil {
		return err
	}
	if err := c.ClusterAddSlotsRange(ctx, from, to).Err(); err != nil {
		return err
	}
	if s == first {
		return nil
	}
	return c.ClusterMeet(ctx, first.host(), first.Port()).Err()
}

// AwaitCluster waits until each server knows all the others and finds the cluster in order.
func AwaitCluster(ctx context.Context, nodes []*Server) error {
	for _, s := range nodes {
		c := redis.NewClient(&redis.Options{Addr: s.Addr})
		defer c.Close()
		for {
			info, err := c.ClusterInfo(ctx).Result()
			if err == nil && strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, fmt.Sprintf("cluster_size:%d\r", len(nodes))) {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("redistest: no cluster: %w: %s", errors.Join(ctx.Err(), err), info)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	return nil
}
