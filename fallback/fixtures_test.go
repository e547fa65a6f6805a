package fallback_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

var plain = fallback.Settings{Namespace: "ns", Partitions: 4, Grace: time.Hour}

func id(session string, request uint64) fallback.Identity {
	return fallback.Identity{Session: session, Request: request}
}

func lock(t *testing.T, n fallback.Namespace, p uint32, key string, me fallback.Identity) fallback.LockAnswer {
	t.Helper()
	a, err := n.Lock(t.Context(), fallback.LockRequest{Partition: p, Key: key, Me: me, Block: 1})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func open(t *testing.T, n fallback.Namespace, session string) {
	t.Helper()
	r, err := n.Open(t.Context(), session, fallback.Registration{TTL: time.Hour})
	if err != nil || !r.Alive {
		t.Fatalf("Open: %+v, %v", r, err)
	}
}
