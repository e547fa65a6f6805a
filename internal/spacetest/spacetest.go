// Package spacetest makes calls of a namespace in tests of arbiters, which fail where the call
// does.
package spacetest

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// Plain are settings with a Grace that does not end by itself.
var Plain = fallback.Settings{Namespace: "ns", Partitions: 4, Grace: time.Hour}

// ID returns the identity of a session's request.
func ID(session string, request uint64) fallback.Identity {
	return fallback.Identity{Session: session, Request: request}
}

// Lock asks for a key with one token.
func Lock(t *testing.T, n fallback.Namespace, p uint32, key string, me fallback.Identity) fallback.LockAnswer {
	t.Helper()
	a, err := n.Lock(t.Context(), fallback.LockRequest{Partition: p, Key: key, Me: me, Block: 1})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Open opens a session that lives for an hour.
func Open(t *testing.T, n fallback.Namespace, session string) {
	t.Helper()
	r, err := n.Open(t.Context(), session, fallback.Registration{TTL: time.Hour})
	if err != nil || !r.Alive {
		t.Fatalf("Open: %+v, %v", r, err)
	}
}
