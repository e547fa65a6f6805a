package coord_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// tokenOf locks a key for a moment.
func tokenOf(t *testing.T, c *coord.Coordinator, key string) fallback.Token {
	t.Helper()
	l := lock(t, c, key)
	defer unlock(t, l)
	return fallback.Token(l.Fence())
}

// A process that used another namespace leaves higher tokens at the resource than the key's owner
// gives, until the partition changes hands: by a drain of the owner.
func TestOperations_AnotherNamespaceForAWhile(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	server := redistest.Start(t)
	node := func(namespace string) *coord.Coordinator {
		o := unhurried()
		o.Namespace = namespace
		return join(t, redisarbiter.New(server.Client(t), coldStart), o)
	}
	anna, berta := node("shop"), node("shop")
	settled(t, 61, anna, berta)
	key := keyOf(t, anna)
	before := tokenOf(t, berta, key)
	later(t, before)
	odd := node("shop-canary")
	settled(t, 61, odd)
	resource := tokenOf(t, odd, key)
	if err := odd.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 { // time alone mends nothing
		later(t, resource)
		if token := tokenOf(t, berta, key); token >= resource || token.Epoch() != before.Epoch() {
			t.Fatalf("token %v after %v, the resource has %v", token, before, resource)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := anna.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	if token := tokenOf(t, berta, key); token <= resource {
		t.Errorf("token %v after the drain, the resource has %v", token, resource)
	}
}

// Without a cluster partitions do not change hands: a node that comes for a moment makes them.
func TestOperations_AnotherNamespaceWithoutACluster(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	server := redistest.Start(t)
	open := func(namespace string) *coord.Coordinator {
		return start(t, redisarbiter.New(server.Client(t), coldStart), &coord.Options{Namespace: namespace, Partitions: 61})
	}
	anna := open("shop")
	later(t, tokenOf(t, anna, "k"))
	resource := tokenOf(t, open("shop-canary"), "k")
	later(t, resource)
	if token := tokenOf(t, anna, "k"); token >= resource {
		t.Fatalf("token %v, the resource has %v", token, resource)
	}
	if err := anna.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if token := tokenOf(t, open("shop"), "k"); token >= resource { // nor does a new start
		t.Fatalf("token %v after a new start, the resource has %v", token, resource)
	}
	o := unhurried()
	o.Namespace = "shop"
	node, err := coord.New(t.Context(), redisarbiter.New(server.Client(t), coldStart), o)
	if err != nil {
		t.Fatal(err)
	}
	await.Within(t, time.Minute, "the node has all partitions", func() bool { return node.Stats().Owned == 61 })
	if err := node.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if token := tokenOf(t, open("shop"), "k"); token <= resource {
		t.Errorf("token %v after a node has come and gone, the resource has %v", token, resource)
	}
}

// later waits until an epoch that begins is later than the token's.
func later(t *testing.T, token fallback.Token) {
	t.Helper()
	await.Until(t, "the next second", func() bool { return fallback.EpochAt(time.Now()) > int64(token.Epoch())+1 })
}
