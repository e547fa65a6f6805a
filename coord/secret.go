package coord

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"

	"github.com/holdfast-go/holdfast/fallback"
)

// secrets keeps the gossip encrypted with keys that derive from the namespace's secrets, unless
// Cluster.GossipKeys are set. A node that has not reached the arbiter yet has a key that no other
// node has.
type secrets struct {
	used [][]byte // that the ring has; nil with GossipKeys
}

// firstKeys are the keys that the gossip begins with.
func (x *cluster) firstKeys() [][]byte {
	if keys := x.c.opts.Cluster.GossipKeys; len(keys) > 0 {
		return keys
	}
	key := make([]byte, 32)
	rand.Read(key) // never fails
	x.self.secrets.used = [][]byte{key}
	return x.self.secrets.used
}

// toldSecrets takes the namespace's secrets from a renewal. It is called by one goroutine at a
// time.
func (x *cluster) toldSecrets(all fallback.Secrets) {
	o := &x.c.opts
	if x.self.secrets.used == nil || o.Cluster.host != nil {
		return
	}
	keys := gossipKeys(all, o)
	if len(keys) == 0 || slices.EqualFunc(keys, x.self.secrets.used, slices.Equal) {
		return
	}
	if err := x.ring.SetKeys(keys); err != nil {
		o.Logger.Error("holdfast: the gossip's keys could not be changed", "error", err)
		return
	}
	x.self.secrets.used = keys
}

// gossipKeys returns the keys of the gossip, the one that encrypts first. A new secret encrypts
// once every node has had the time to be told of it, in a renewal. The ones before decrypt for as
// long as a node may not have been told that.
func gossipKeys(all fallback.Secrets, o *Options) (keys [][]byte) {
	settled := 2*o.RenewEvery + o.CallTimeout
	var late [][]byte // new ones, which only decrypt
	for _, s := range all {
		if s == (fallback.Secret{}) {
			break
		}
		key, err := hkdf.Key(sha256.New, s.Key[:], nil, "holdfast gossip "+o.Namespace, 32)
		if err != nil {
			continue // it cannot be, with these lengths
		}
		if len(keys) == 0 && s.Age < settled {
			late = append(late, key)
			continue
		}
		keys = append(keys, key)
		if s.Age > settled+o.SessionTTL {
			break // older ones have not been used since
		}
	}
	return append(keys, late...)
}

// OwnGossipKeys is NodeReport.Gossip of a node with Cluster.GossipKeys.
const OwnGossipKeys = "GossipKeys"

// gossipKey returns NodeReport.Gossip. The ID of a secret tells nothing of it; keys of the
// application's get none, as they may be easy to guess.
func (x *cluster) gossipKey() string {
	if len(x.c.opts.Cluster.GossipKeys) > 0 {
		return OwnGossipKeys
	}
	r, ok := x.ring.(interface{ Keys() [][]byte })
	if !ok {
		return ""
	}
	keys := r.Keys()
	if len(keys) == 0 {
		return ""
	}
	id, err := hkdf.Key(sha256.New, keys[0], nil, "holdfast gossip key's ID", 8)
	if err != nil {
		return "" // it cannot be, with these lengths
	}
	return hex.EncodeToString(id)
}

var errOwnKeys = errors.New("coord: RotateSecret: the gossip is encrypted with Options.Cluster.GossipKeys, and not with the secret: change those, " +
	"by three deployments: a new key at the end, then in front, then without the old one")

// RotateSecret makes a new secret of the namespace. After two RenewEvery and a CallTimeout all
// nodes encrypt the cluster's gossip with it, without a restart. One SessionTTL later they decrypt
// nothing with the one before. The arbiter keeps the two before the newest: do not rotate three
// times within these two RenewEvery, or nodes that have not renewed meanwhile are cut off from the
// gossip until they have. It blocks for one call of the arbiter; the error is the arbiter's, or
// [ErrUnavailable] if it has not been reached yet.
//
// Nothing else depends on the secret. Where Cluster.GossipKeys are set it protects nothing, and
// RotateSecret returns an error: change those, by deployments. A process without a cluster, or with
// Options.Observe, cannot know whether the nodes have such keys: there nil says only that the
// arbiter has a new secret. NodeReport.Gossip names the key that a node uses; the command holdfast
// rotate-secret waits for that.
//
// Rotate the secret if it may have been read: every program that can read the arbiter's data
// can, a backup or copy of it included.
func (c *Coordinator) RotateSecret(ctx context.Context) error {
	if x := c.opts.Cluster; x != nil && len(x.GossipKeys) > 0 {
		return errOwnKeys
	}
	ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
	defer cancel()
	ns, err := c.space(ctx)
	if err != nil {
		return err
	}
	sent := c.now()
	err = ns.Rotate(ctx)
	c.called(OpRotate, sent, err)
	return err
}
