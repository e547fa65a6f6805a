package coord

import (
	"bytes"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/gossip"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// secretsOf makes secrets of these ages, newest first.
func secretsOf(ages ...time.Duration) (all fallback.Secrets) {
	for i, age := range ages {
		all[i] = fallback.Secret{Key: [32]byte{1, byte(len(ages) - i)}, Age: age}
	}
	return all
}

// A node that has been told of a new secret and one that has not understand each other at any moment, as long as both
// renew.
func TestGossipKeysWhileASecretIsRotated(t *testing.T) {
	o := (&Options{}).filled()
	key := func(ages ...time.Duration) []byte { return gossipKeys(secretsOf(ages...), &o)[0] }
	first := key(1000 * time.Hour)
	for _, c := range []struct {
		name string
		ages []time.Duration
		n    int
		old  bool // the one before encrypts
	}{
		{"before", []time.Duration{1000 * time.Hour}, 1, true},
		{"new", []time.Duration{0, 1000 * time.Hour}, 2, true},
		{"known to all", []time.Duration{2*o.RenewEvery + o.CallTimeout, 1000 * time.Hour}, 2, false},
		{"used by all", []time.Duration{time.Minute, 1000 * time.Hour}, 1, false},
	} {
		keys := gossipKeys(secretsOf(c.ages...), &o)
		if len(keys) != c.n || bytes.Equal(keys[0], first) != c.old {
			t.Errorf("%s: %d keys, the old one encrypts: %t", c.name, len(keys), bytes.Equal(keys[0], first))
		}
	}
	if keys := gossipKeys(fallback.Secrets{}, &o); keys != nil {
		t.Error("keys of no secret")
	}
	o.Namespace = "another"
	if bytes.Equal(key(1000*time.Hour), first) {
		t.Error("two namespaces with one secret have the same key")
	}
}

// The gossip of a cluster whose options say nothing is encrypted, and stays so through a rotation, on all nodes.
func TestSecretIsRotatedWhileTheClusterRuns(t *testing.T) {
	takes.Seconds(t)
	arbiter := fallback.NewMemory()
	o := func() *Options {
		o := small()
		o.RenewEvery = 100 * time.Millisecond
		return o
	}
	a, b := enter(t, arbiter, o()), enter(t, arbiter, o())
	await.Until(t, "a and b own all", func() bool { return a.Stats().Owned+b.Stats().Owned == 61 && b.Stats().Owned > 0 })
	encrypts := func(c *Coordinator) []byte { return c.cluster.ring.(*gossip.Ring).Keys()[0] }
	before := encrypts(a)
	if !bytes.Equal(before, encrypts(b)) {
		t.Fatal("the nodes have different keys")
	}
	if err := a.RotateSecret(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "both use the new secret, and have forgotten the old one", func() bool {
		return !bytes.Equal(encrypts(a), before) && bytes.Equal(encrypts(a), encrypts(b)) &&
			len(a.cluster.ring.(*gossip.Ring).Keys()) == 1 && len(b.cluster.ring.(*gossip.Ring).Keys()) == 1
	})
	c := enter(t, arbiter, o())
	await.Until(t, "a new node gets its share", func() bool { return c.Stats().Owned > 0 && len(a.Nodes()) == 3 })
}
