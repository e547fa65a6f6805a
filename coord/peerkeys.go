package coord

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/peer"
)

// validatePeerKeys returns an error for invalid PeerKeys, or for empty GossipKeys.
func (o *Cluster) validatePeerKeys() error {
	if o.PeerKeys != nil && o.PeerTLS != nil {
		return errors.New("coord: Options.Cluster.PeerKeys and Options.Cluster.PeerTLS are both set: take one of them")
	}
	for name, keys := range map[string][][]byte{"PeerKeys": o.PeerKeys, "GossipKeys": o.GossipKeys} {
		if keys != nil && len(keys) == 0 {
			return fmt.Errorf("coord: Options.Cluster.%s is an empty list, which protects nothing: nil takes what the arbiter keeps", name)
		}
	}
	for i, key := range o.PeerKeys {
		if len(key) < peer.MinKey {
			return fmt.Errorf("coord: Options.Cluster.PeerKeys: key %d has %d bytes, must have at least %d random ones", i+1, len(key), peer.MinKey)
		}
	}
	return nil
}

// newIdentity makes the key of this process's streams.
func (o *Cluster) newIdentity() (i *peer.Identity, err error) {
	if len(o.PeerKeys) > 0 {
		i, err = peer.NewIdentityFor(o.PeerKeys)
	} else {
		i, err = peer.NewIdentity()
	}
	if err != nil {
		return nil, fmt.Errorf("coord: New: %w", err)
	}
	return i, nil
}
