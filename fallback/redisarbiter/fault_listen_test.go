package redisarbiter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestListenerThatLosesItsConnection(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	n := attach(t, s.Client(t), cold)
	messages := make(chan fallback.Message, 100)
	stop, err := n.Listen(t.Context(), "alice", func(m fallback.Message) { messages <- m })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	next := func() fallback.Message {
		select {
		case m := <-messages:
			return m
		case <-time.After(patience):
			t.Fatal("no message")
			return fallback.Message{}
		}
	}
	lock(t, n, 0, "k", id("alice", 1))
	for i := range 3 {
		lock(t, n, 0, "k", id("bob", uint64(i))) // asks
		if m := next(); m != (fallback.Message{Kind: fallback.Ask, Key: "k", Request: 1}) {
			t.Errorf("message: got %+v, want to be asked", m)
		}
		if err := s.Client(t).ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err(); err != nil {
			t.Fatal(err)
		}
		if m := next(); m.Kind != fallback.Gap {
			t.Errorf("message: got %+v, want a gap", m)
		}
	}
}

func TestListenEndsWithItsContextOrIsInForce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	n := attach(t, s.Client(t), cold)
	lock(t, n, 0, "k", id("alice", 1))
	failed := 0
	for i := range 300 {
		// The context ends somewhere in Listen, or not.
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(time.Duration(i)*4*time.Microsecond, cancel)
		messages := make(chan fallback.Message, 10)
		stop, err := n.Listen(ctx, "alice", func(m fallback.Message) { messages <- m })
		timer.Stop()
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("Listen: %v", err)
			}
			failed++
			cancel()
			continue
		}
		cancel() // which does not end it any more
		lock(t, n, 0, "k", id("bob", 1))
		select {
		case <-messages:
		case <-time.After(patience):
			t.Fatal("Listen was not in force")
		}
		stop()
	}
	t.Logf("%d of 300 ended by their contexts", failed)
}
