package main

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// replicate gives a server a replica.
func replicate(t *testing.T, s *redistest.Server, args ...string) {
	t.Helper()
	if err := redistest.Start(t, args...).Replicate(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

// A lock that no replica has is said to be one, and one that a replica has is not.
func TestLock_SaysWhatTheArbiterAdvises(t *testing.T) {
	n := newNamespace(t)
	n.open(&coord.Options{Name: "app"})
	replicate(t, n.server)
	for _, c := range [][]string{{"lock", "k"}, {"elect", "e"}} {
		x := n.start(append(c, "--", "cat")...)
		await.Until(t, "it says so", func() bool { return strings.Contains(x.err.String(), "holdfast: "+n.server.Addr+" has replicas (1)") })
		_ = x.in.Close()
		x.want(0)
	}
	await.Within(t, time.Minute, "it locks with --replicas", func() bool { // on a busy machine the replica may be late
		x := n.start("lock", "--replicas", "1", "k", "--", "true")
		status, _ := x.ends()
		if strings.Contains(x.err.String(), "has replicas") {
			t.Errorf("with --replicas it says %s", x.err.String())
		}
		return status == 0
	})
}

// Without the right to ask a server for its identity, a command says that a failover would not be
// noticed.
func TestLock_SaysThatTheServerIsNotKnown(t *testing.T) {
	n := newNamespace(t)
	if err := n.client.Do(t.Context(), "acl", "setuser", "default", "-info").Err(); err != nil {
		t.Fatal(err)
	}
	n.open(&coord.Options{Name: "app"})
	x := n.start("lock", "k", "--", "true")
	if x.want(0); !strings.Contains(x.err.String(), "holdfast: the server does not tell its identity: permit INFO, ") {
		t.Errorf("it says %q", x.err.String())
	}
}

// In a namespace of AllReplicas a command locks with the option, and is told of it without.
func TestLock_AllReplicas(t *testing.T) {
	always := []string{"--appendonly", "yes", "--appendfsync", "always"}
	n := &namespace{t: t, server: redistest.Start(t, always...)}
	n.client = n.server.Client(t)
	replicate(t, n.server, always...)
	arbiter := redisarbiter.New(n.client, &redisarbiter.Options{ColdStart: true, AllReplicas: 1})
	await.Within(t, time.Minute, "the application starts", func() bool { // once the file is complete
		c, err := coord.New(t.Context(), arbiter, &coord.Options{SessionTTL: 3 * time.Second, Grace: 4 * time.Second, Partitions: 31})
		if errors.Is(err, fallback.ErrRefused) {
			t.Fatal(err)
		}
		if err == nil {
			t.Cleanup(func() { _ = c.Close(t.Context()) })
		}
		return err == nil
	})
	await.Within(t, time.Minute, "it locks with --all-replicas", func() bool { // as above
		status, _ := n.start("lock", "--all-replicas", "1", "k", "--", "true").ends()
		return status == 0
	})
	x := n.start("lock", "k", "--", "true")
	if x.want(statusFailed); !strings.Contains(x.err.String(), "Options.AllReplicas: set it") {
		t.Errorf("without it: %s", x.err.String())
	}
}

// A command is killed before another process gets the lock, also where the application's times are
// short.
func TestLock_KillsWithinTheMargin(t *testing.T) {
	n := newNamespace(t)
	n.open(&coord.Options{Name: "app"})
	s := &settings{url: "redis://" + n.server.Addr, namespace: "holdfast", name: "op"}
	_, done, err := s.member(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done()
	if margin := 4 * time.Second / 12; s.margin > margin || s.margin < margin-time.Millisecond {
		t.Errorf("the margin is %v, want %v", s.margin, margin)
	}
	for margin, want := range map[time.Duration]time.Duration{time.Second: 800 * time.Millisecond, 3 * time.Second: 800 * time.Millisecond, 300 * time.Millisecond: 240 * time.Millisecond} {
		if got := killIn(margin); got != want {
			t.Errorf("%v with a margin of %v, want %v", got, margin, want)
		}
	}
}

// A namespace does not keep a long Grace for commands, which need none.
func TestLock_ALongGraceGoesWithItsApplication(t *testing.T) {
	n := newNamespace(t)
	app, err := coord.New(t.Context(), redisarbiter.New(n.client, &redisarbiter.Options{ColdStart: true}),
		&coord.Options{Name: "app", SessionTTL: 35 * time.Second, Partitions: 31})
	if err != nil {
		t.Fatal(err)
	}
	grace := func() time.Duration {
		t.Helper()
		found, err := redisarbiter.New(n.client, nil).Describe(t.Context(), "holdfast")
		if err != nil {
			t.Fatal(err)
		}
		return found.Grace
	}
	command := func() {
		t.Helper()
		x := n.start("lock", "k", "--", "true")
		x.want(0)
	}
	if command(); grace() != 42*time.Second {
		t.Errorf("beside the application: Grace is %v", grace())
	}
	_ = app.Close(t.Context())
	if command(); grace() != 12*time.Second {
		t.Errorf("without an application that needs it: Grace is %v", grace())
	}
}

// slow is a store that refuses short times.
type slow struct{ *fallback.Memory }

func (a slow) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	if s.Lease < 22*time.Second {
		return nil, fallback.ErrRefused
	}
	return a.Memory.Attach(ctx, s)
}

// At a store that wants longer times than a command's own, it has those of the application.
func TestLock_AStoreThatWantsLongTimes(t *testing.T) {
	a := slow{fallback.NewMemory()}
	app, err := coord.New(t.Context(), a, &coord.Options{Namespace: "shop", SessionTTL: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = app.Close(context.Background()) }()
	before := openers
	defer func() { openers = before }()
	openers = append(slices.Clone(openers), opener{schemes: []string{"slow"}, open: func(*settings, url.URL) (*arbiter, error) {
		return &arbiter{a, func() error { return nil }, nil}, nil
	}})
	s := &settings{url: "slow://", namespace: "shop", name: "op"}
	_, done, err := s.member(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done()
	if s.margin != 2*time.Second {
		t.Errorf("the margin is %v", s.margin)
	}
}
