package coord_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// With PeerKeys a session at the arbiter alone is not enough: a node or an observer without a key
// gets no stream. Keys are changed one deployment after another.
func TestPeerKeys(t *testing.T) {
	takes.Seconds(t)
	older, newer := bytes.Repeat([]byte("a"), 32), bytes.Repeat([]byte("b"), 32)
	a := fallback.NewMemory()
	with := func(keys ...[]byte) *coord.Options {
		o := unhurried()
		o.Cluster.PeerKeys = keys
		return o
	}
	x, y := join(t, a, with(older)), join(t, a, with(older, newer))
	settle(t, 61, x, y)
	y = func() *coord.Coordinator {
		if err := y.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		return join(t, a, with(newer, older))
	}()
	if linked(x, y) {
		t.Error("the new key is proved before all nodes have it")
	}
	if err := x.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	x = join(t, a, with(newer))
	settle(t, 61, x, y)

	t.Run("a node without", func(t *testing.T) {
		stranger := join(t, a, unhurried())
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		err := stranger.Settled(ctx, 3)
		if err == nil || linked(stranger, x) || linked(x, stranger) {
			t.Errorf("a session at the arbiter is enough for a stream: %v", err)
		}
		unlock(t, lock(t, stranger, "key")) // by the arbiter
		await.Until(t, "a node is told that the other one has no key", func() bool {
			return strings.Contains(refusal(x, stranger), "shared keys") && strings.Contains(refusal(x, stranger), "it has none")
		})
		await.Until(t, "that one is told that it is refused", func() bool { return refusal(stranger, x) != "" })
		if why := refusal(x, y); why != "" {
			t.Errorf("nodes with a stream refuse each other: %s", why)
		}
	})
	t.Run("observers", func(t *testing.T) {
		for want, keys := range map[bool][][]byte{true: {newer}, false: nil} {
			o := unhurried()
			o.Observe = true
			o.Cluster = &coord.Cluster{PeerKeys: keys}
			watcher, err := coord.New(t.Context(), a, o)
			if err != nil {
				t.Fatal(err)
			}
			if want {
				await.Until(t, "an observer with a key has a stream", func() bool { return linked(watcher, x) })
			} else {
				await.Throughout(t, 300*time.Millisecond, "an observer without a key has no stream", func() bool { return !linked(watcher, x) })
			}
			if err := watcher.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("with PeerTLS", func(t *testing.T) {
		o := with(newer)
		o.Cluster.PeerTLS = nodeTLS(t)
		if _, err := coord.New(t.Context(), a, o); err == nil || !strings.Contains(err.Error(), "both set") {
			t.Error(err)
		}
	})
}

// linked reports whether c has a stream to x.
func linked(c, x *coord.Coordinator) bool { return seen(c, x).Linked }

// refusal returns why c and x refuse each other, as c says.
func refusal(c, x *coord.Coordinator) string { return seen(c, x).Refused }

// seen returns x as c sees it.
func seen(c, x *coord.Coordinator) coord.NodeInfo {
	var id string
	for _, n := range x.Nodes() {
		if n.Self {
			id = n.ID
		}
	}
	for _, n := range c.Nodes() {
		if n.ID == id {
			return n
		}
	}
	return coord.NodeInfo{}
}
