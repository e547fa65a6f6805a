package redisarbiter_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// Sentinel has made another server the primary, and the old one goes on acknowledging: it must not
// keep a session alive. The dialer of a client that asks Sentinel leads to the primary that this
// names.
func TestADeposedPrimaryKeepsNoSessionAlive(t *testing.T) {
	t.Parallel()
	a, b := redistest.Start(t), redistest.Start(t)
	var primary atomic.Pointer[string]
	primary.Store(&a.Addr)
	c := dial(t, "FailoverClient", func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, *primary.Load())
		}
	})
	n := attach(t, c, cold)
	renew := func() (fallback.Renewal, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		return n.Renew(ctx, "alice", fallback.Registration{TTL: time.Hour})
	}
	if _, err := n.Open(t.Context(), "alice", fallback.Registration{TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	before, err := renew()
	if err != nil || !before.Alive {
		t.Fatalf("%+v, %v", before, err)
	}
	primary.Store(&b.Addr)
	if r, err := renew(); err == nil && r.Server == before.Server {
		t.Errorf("the deposed primary has renewed: %+v", r)
	}
	if r, err := renew(); err != nil || r.Server == before.Server {
		t.Errorf("then: %+v, %v, want the new primary's answer", r, err)
	}
}

// The application cannot take the connections that keep sessions alive, whatever its client's pool
// allows.
func TestOwnConnectionsHaveTheClientsOptions(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--requirepass", "secret")
	var asked, connected atomic.Int64
	c := dial(t, s.Addr, func(o *redis.Options) {
		o.PoolSize, o.MaxActiveConns, o.DB, o.ClientName = 1, 1, 3, "shop"
		o.CredentialsProvider = func() (string, string) { asked.Add(1); return "", "secret" }
		o.OnConnect = func(context.Context, *redis.Conn) error { connected.Add(1); return nil }
	})
	n := attach(t, c, cold)
	if asked.Load() == 0 || connected.Load() == 0 {
		t.Errorf("credentials asked for %d times, OnConnect called %d times", asked.Load(), connected.Load())
	}
	only := c.Conn() // the one connection that there is
	defer only.Close()
	if err := only.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if _, err := n.Open(ctx, "alice", fallback.Registration{TTL: time.Hour}); err != nil {
			t.Error(err)
		}
		if _, err := redisarbiter.Verify(ctx, n, []fallback.Read{{}, {Partition: 1}}); err != nil {
			t.Error(err)
		}
		cancel()
	}
	if exists, err := only.Exists(t.Context(), "{ns:s}").Result(); err != nil || exists != 1 {
		t.Errorf("the sessions are not in the client's database: %d, %v", exists, err)
	}
}

func TestNegativeReplicasAreRefused(t *testing.T) {
	c := dial(t, "127.0.0.1:1")
	for named, o := range map[string]*redisarbiter.Options{
		"Options.Replicas is -1":         {Replicas: -1},
		"Options.ReplicaTimeout is -1ns": {ReplicaTimeout: -1},
	} {
		_, err := redisarbiter.New(c, o).Attach(t.Context(), plain)
		if !errors.Is(err, fallback.ErrRefused) || !strings.Contains(err.Error(), named) {
			t.Errorf("%v, want ErrRefused that says %q", err, named)
		}
	}
}

// go-redis dials once a second only after many failures: a session is to be renewed as soon as the
// server is back.
func TestAServerThatIsBackIsNoticedAtOnce(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes")
	n := attach(t, dial(t, s.Addr), cold)
	renew := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := n.Renew(ctx, "alice", fallback.Registration{TTL: time.Hour})
		return err
	}
	if _, err := n.Open(t.Context(), "alice", fallback.Registration{TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	for range 5 { // each is tried again by go-redis
		if err := renew(); !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("renewed by a server that is gone: %v, want ECONNREFUSED", err)
		}
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if err := renew(); err != nil {
		t.Errorf("the first renewal after that: %v", err)
	}
}
