//go:build unix

package faults

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

const primaryName = "primary"

func TestASentinelFailoverGrantsNothingTwice(t *testing.T) {
	takes.Seconds(t)
	long(t)
	primary := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	replica := redistest.Start(t)
	follow(t, replica, primary)
	sentinel := startSentinel(t, primary)
	s := newScene(t, job{Redis: primaryName, Sentinel: sentinel, TTL: 2 * time.Second, Grace: 2500 * time.Millisecond})
	s.start("w1", brief(busy...), brief(busy...), lasting(slow...))
	s.start("w2", brief(busy...), brief(busy...), lasting(slow...))
	s.start("w3", brief(busy...), brief(busy...), lasting(slow...))
	s.settle("a", "b", "c", "x", "y")
	s.work(100)

	primary.Kill()
	killed := time.Now()
	var epoch uint32
	for _, v := range s.judge.seen() {
		epoch = max(epoch, v.Token.Epoch())
	}
	promoted := awaitPromotion(t, sentinel, replica)
	again := s.judge.await(t, s.base.Grace+2*time.Second, "every process works again",
		each(s.names, byWorker, func(v visit) bool { return v.Token.Epoch() > epoch }))
	t.Logf("Q is %v; promoted after %v; every process works again after %v more", s.base.Grace,
		promoted.Sub(killed).Round(time.Millisecond), again.Sub(promoted).Round(time.Millisecond))
	s.check()
}

// startSentinel starts a Sentinel that watches the primary, waits until it knows the replica, and
// returns its address. It is stopped when the test ends.
func startSentinel(t *testing.T, primary *redistest.Server) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for ctx.Err() == nil { // another process may take the port meanwhile
		if addr, ended := launchSentinel(t, primary); knowsReplica(ctx, addr, ended) {
			return addr
		}
	}
	t.Fatal("there is no Sentinel that knows the replica")
	return ""
}

func launchSentinel(t *testing.T, primary *redistest.Server) (addr string, ended <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	_ = l.Close()
	dir := t.TempDir()
	conf := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf("port %s\nbind 127.0.0.1\ndir %s\nsentinel monitor %s 127.0.0.1 %s 1\n"+
		"sentinel down-after-milliseconds %[3]s 500\nsentinel failover-timeout %[3]s 5000\n", port, dir, primaryName, primary.Port())
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("redis-server", conf, "--sentinel")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		if t.Failed() {
			t.Logf("sentinel:\n%s", log.String())
		}
	})
	return addr, done
}

// knowsReplica waits until the Sentinel knows of a replica. It reports false if the Sentinel has
// ended.
func knowsReplica(ctx context.Context, addr string, ended <-chan struct{}) bool {
	c := redis.NewSentinelClient(&redis.Options{Addr: addr})
	defer c.Close()
	for {
		replicas, err := c.Replicas(ctx, primaryName).Result()
		if err == nil && len(replicas) == 1 && replicas[0]["master-link-status"] == "ok" {
			return true
		}
		select {
		case <-ended:
			return false
		case <-ctx.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// awaitPromotion waits until the Sentinel sends clients to the replica, and returns when that was.
func awaitPromotion(t *testing.T, sentinel string, replica *redistest.Server) time.Time {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second)
	defer cancel()
	c := redis.NewSentinelClient(&redis.Options{Addr: sentinel})
	defer c.Close()
	for {
		addr, err := c.GetMasterAddrByName(ctx, primaryName).Result()
		if err == nil && len(addr) == 2 && addr[1] == replica.Port() {
			return time.Now()
		}
		select {
		case <-ctx.Done():
			t.Fatalf("no failover: %v %v", addr, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
