//go:build unix

package etcd

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/loopback"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// A cluster is one of real members, each with a directory of its own.
type cluster struct {
	t       *testing.T
	members []*storetest.Process
	dirs    []string
	urls    []string // of clients
}

// startCluster starts members with their defaults, but for some flags.
func startCluster(t *testing.T, members int, flags ...string) *cluster {
	t.Helper()
	program, err := exec.LookPath("etcd")
	if err != nil {
		t.Skip("etcd is not installed (apt install etcd-server)")
	}
	dir, err := os.MkdirTemp("", "hfetcd-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	c := &cluster{t: t}
	var peers, all []string
	for i := range members {
		peers = append(peers, "http://"+loopback.Address(t))
		c.urls = append(c.urls, "http://"+loopback.Address(t))
		c.dirs = append(c.dirs, filepath.Join(dir, fmt.Sprint("m", i)))
		all = append(all, fmt.Sprintf("m%d=%s", i, peers[i]))
	}
	for i := range members {
		if err := os.Mkdir(c.dirs[i], 0o700); err != nil {
			t.Fatal(err)
		}
		c.members = append(c.members, storetest.Start(t, c.dirs[i], nil, append([]string{program, "--name", fmt.Sprint("m", i),
			"--data-dir", "data", "--listen-client-urls", c.urls[i], "--advertise-client-urls", c.urls[i],
			"--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i], "--initial-cluster", strings.Join(all, ","),
			"--log-level", "error"}, flags...)...))
	}
	c.leader(-1)
	return c
}

// client is one of some members, or of all if none is named.
func (c *cluster) client(members ...int) *clientv3.Client {
	c.t.Helper()
	urls := c.urls
	if len(members) > 0 {
		urls = nil
		for _, i := range members {
			urls = append(urls, c.urls[i])
		}
	}
	return c.open(clientv3.Config{Endpoints: urls})
}

// clientBy is one of all members, by a line.
func (c *cluster) clientBy(line *storetest.Line) *clientv3.Client {
	c.t.Helper()
	dial := line.Through(new(net.Dialer).DialContext)
	return c.open(clientv3.Config{Endpoints: c.urls, DialOptions: []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) }),
	}})
}

func (c *cluster) open(config clientv3.Config) *clientv3.Client {
	c.t.Helper()
	config.Logger = zap.NewNop()
	x, err := clientv3.New(config)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := x.Close(); err != nil {
			c.t.Error(err)
		}
	})
	return x
}

// leader waits for a leader that another member than not knows of, and which not is not.
func (c *cluster) leader(not int) (leader int) {
	c.t.Helper()
	ask := (not + 1) % len(c.urls)
	client := c.client(ask)
	await.Within(c.t, 2*time.Minute, "a leader", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		status, err := client.Status(ctx, c.urls[ask])
		if err != nil || status.Leader == 0 {
			return false
		}
		list, err := client.MemberList(ctx)
		if err != nil {
			return false
		}
		for _, m := range list.Members {
			if m.ID == status.Leader {
				_, err := fmt.Sscanf(m.Name, "m%d", &leader)
				return err == nil && leader != not
			}
		}
		return false
	})
	return leader
}

// killLeader is kill -9 of the leader, which comes back as a follower when another member leads.
func (c *cluster) killLeader() {
	c.t.Helper()
	if len(c.members) == 1 {
		c.restart()
		return
	}
	i := c.leader(-1)
	c.members[i].Kill()
	c.leader(i)
	c.members[i].Begin()
}

// restart is kill -9 of all members at once.
func (c *cluster) restart() {
	c.t.Helper()
	for _, m := range c.members {
		m.Kill()
	}
	for _, m := range c.members {
		m.Begin()
	}
	c.leader(-1)
}

// old makes the leader stand still until another member leads, and returns an arbiter that asks it
// only.
func (c *cluster) old() (fallback.Arbiter, func()) {
	c.t.Helper()
	i := c.leader(-1)
	goOn := c.members[i].Stop()
	c.leader(i)
	return New(c.client(i), isNew), goOn
}

// stopFollower makes a member stand still that does not lead.
func (c *cluster) stopFollower() (heal func()) {
	c.t.Helper()
	return c.members[(c.leader(-1)+1)%len(c.members)].Stop()
}

// isNew says that namespaces are new.
var isNew = &Options{ColdStart: true}

func (c *cluster) injuries() arbitertest.Cluster {
	x := arbitertest.Cluster{
		New:     func(*testing.T) fallback.Arbiter { return New(c.client(), isNew) },
		Kill:    func(*testing.T) { c.killLeader() },
		Restart: func(*testing.T) { c.restart() },
		Careful: func(*testing.T) fallback.Arbiter { return New(c.client(), nil) },
		Empty: func(t *testing.T) {
			if _, err := c.client().Delete(t.Context(), "holdfast/", clientv3.WithPrefix()); err != nil {
				t.Fatal(err)
			}
		},
	}
	x.Delete = func(t *testing.T, key string) {
		if r, err := c.client().Delete(t.Context(), newStore(nil, nil).recordKey(key)); err != nil || r.Deleted != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if len(c.members) > 1 {
		x.Old = func(*testing.T) (fallback.Arbiter, func()) { return c.old() }
		x.Cut = func(*testing.T) func() { return c.stopFollower() }
	}
	return x
}

// mark puts another mark in the place of the one that there is.
func (c *cluster) mark() {
	c.t.Helper()
	if _, err := c.client().Put(c.t.Context(), newStore(nil, nil).markKey(), rand.Text()); err != nil {
		c.t.Fatal(err)
	}
}

// copied stops a cluster of one member, copies its data, and starts it again. back puts the copy in
// their place.
func (c *cluster) copied() (back func()) {
	c.t.Helper()
	data := filepath.Join(c.dirs[0], "data")
	run := func(args ...string) {
		c.t.Helper()
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			c.t.Fatalf("%s: %v", out, err)
		}
	}
	c.members[0].Kill()
	run("cp", "-a", data, data+".old")
	c.members[0].Begin()
	c.leader(-1)
	return func() {
		c.members[0].Kill()
		run("rm", "-rf", data)
		run("mv", data+".old", data)
		c.members[0].Begin()
		c.leader(-1)
	}
}
