//go:build linux

package lab

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/lab/agent"
	"github.com/holdfast-go/holdfast/internal/netns"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// A dataHost is a host with a redis-server whose disk keeps each write.
type dataHost struct {
	*netns.Host
	server *redistest.Server
	client *redis.Client
	addr   string
}

func (w *world) dataHost(t *testing.T, addr string) *dataHost {
	t.Helper()
	h := w.host(t, addr)
	place := redistest.Place{Addr: addr + ":6379", Command: h.In(), Dial: h.Dial}
	s, err := redistest.NewAt(place, t.TempDir(), "--bind", "0.0.0.0", "--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0")
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: s.Addr, Dialer: h.Dial})
	t.Cleanup(func() {
		c.Close()
		s.Kill()
	})
	return &dataHost{h, s, c, addr}
}

// follow makes the server a replica of another one, and waits until it has everything.
func (d *dataHost) follow(t *testing.T, of *dataHost) {
	t.Helper()
	if err := d.client.ReplicaOf(t.Context(), of.addr, "6379").Err(); err != nil {
		t.Fatal(err)
	}
	await.Within(t, time.Minute, "the replica has everything", func() bool {
		info, err := d.client.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
}

// A primary and its replica are on two hosts, and clients reach the primary at a third address,
// which moves: with AllReplicas Grace ends early when the primary's host is gone, and no lock of
// the others fails. A process starts once there is a replica again.
func TestAllReplicas(t *testing.T) {
	w := begin(t, true)
	const address = "10.0.0.63"
	a, b := w.dataHost(t, "10.0.0.61"), w.dataHost(t, "10.0.0.62")
	b.follow(t, a)
	ip := func(h *netns.Host, args ...string) {
		if err := h.IP(args...); err != nil {
			t.Fatal(err)
		}
	}
	ip(a.Host, "addr", "add", address+"/24", "dev", "eth0")
	options := func(int) *agent.Addresses { return &agent.Addresses{AllReplicas: 1} }
	var hosts []*netns.Host
	host := func() *netns.Host {
		h := w.bare(t, address)
		plug(t, h, w.outside, fmt.Sprint("10.0.0.", 64+len(hosts)))
		hosts = append(hosts, h)
		return h
	}
	nodes := w.together(t, []*netns.Host{host(), host(), host()}, options)

	var pending []func() agent.Answer
	for _, n := range nodes {
		pending = append(pending, n.ask(agent.Command{Op: "work", Keys: keys, Limit: 8 * time.Second}))
	}
	a.server.Kill()
	ip(a.Host, "addr", "del", address+"/24", "dev", "eth0")
	if err := b.client.ReplicaOf(t.Context(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	ip(b.Host, "addr", "add", address+"/24", "dev", "eth0")
	for _, h := range hosts {
		ip(h, "neigh", "flush", "all") // as the new host's announcement by ARP does
	}
	promoted := time.Now()
	early := func() bool {
		for _, n := range nodes {
			if len(n.records("Grace ends early")) > 0 {
				return true
			}
		}
		return false
	}
	await.Within(t, 30*time.Second, "Grace ends early", early)
	t.Logf("Grace ended %v after the promotion", time.Since(promoted).Round(10*time.Millisecond))
	var answers []agent.Answer
	for _, answer := range pending {
		answers = append(answers, answer())
	}
	if longest := judge(t, nodes, answers); longest > 3*time.Second {
		t.Errorf("a lock was waited for for %v", longest)
	} else {
		t.Logf("a lock was waited for for at most %v", longest)
	}

	if err := a.server.Restart(); err != nil {
		t.Fatal(err)
	}
	a.follow(t, b)
	nodes = append(nodes, w.start(t, host(), options(3)))
	settle(t, nodes)
	work(t, nodes, time.Second)
	leave(nodes)
}
