package coord

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/guardians"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/peer"
	"github.com/holdfast-go/holdfast/ring"
)

// Cluster makes the coordinators of a namespace share out its partitions: each grants the keys of
// its own from memory, to its own callers and to other nodes. It asks the arbiter for a key only if
// the key's partition has no owner, or the owner cannot be reached. Every field but Membership may
// be left out. Nodes find each other through the arbiter.
type Cluster struct {
	// Membership begins to tell which nodes there are: gossip.Start, of package
	// github.com/holdfast-go/holdfast/gossip. Required. It is a field so that programs without a
	// cluster do not link the gossip.
	Membership func(ring.Options) (ring.Membership, error)

	// Gossip is the IP:port of the gossip about the membership, by UDP and TCP with the same port.
	// Port 0: any free one. ":7946", "0.0.0.0:7946" or "[::]:7946": all interfaces. Default: any
	// free port of Peer's host if that is an IP, otherwise of the address that other machines reach
	// this one at. That is the source address of the route to the first of Seeds, or to the
	// arbiter; otherwise that of the default route; otherwise the first private address; otherwise
	// a public one. A loopback address is taken if there is no other.
	Gossip string
	// GossipAdvertise is the IP:port of Gossip that other nodes are told: another one than is bound
	// behind NAT. Port 0: the port that is bound. Default: the first of Gossip, PeerAdvertise and
	// Peer with an IP of one interface as its host, otherwise the default address of Gossip; with
	// port 0.
	GossipAdvertise string
	// GossipKeys encrypt the gossip: the first one encrypts, all decrypt; 16, 24 or 32 bytes each.
	// All nodes or none must set them. They are changed as PeerKeys are. Default: keys that derive
	// from a secret of the namespace, which the arbiter keeps; see [Coordinator.RotateSecret].
	GossipKeys [][]byte
	// Seeds are gossip addresses of other nodes, host or host:port, for when the arbiter cannot
	// tell. A host may be a name that resolves to many. The default port is Gossip's, or 7946.
	// Default: none.
	Seeds []string

	// Peer is the host:port where other nodes ask for keys, by TCP. Port 0: any free one. ":7947",
	// "0.0.0.0:7947" or "[::]:7947": all interfaces. Default: any free port of Gossip's host.
	Peer string
	// PeerAdvertise is the host:port of Peer that other nodes are told; the host may be a name.
	// Port 0: the port that is bound. Default: Peer's host, and for all interfaces the host that
	// others are told for the gossip; with port 0.
	PeerAdvertise string
	// PeerKeys are secrets that a node of this cluster has to prove besides the key that the
	// arbiter lists: a client that can write to the arbiter is no node without one of them. A node
	// proves the first one, and accepts each. So deployments change them, and each ends before the
	// next one begins: add a key at the end, put it first, take the old one out. [peer.KeyID] names
	// a key in errors. At least 32 random bytes each ([peer.MinKey]). All nodes or none must set
	// them, and not PeerTLS. Set GossipKeys as well. Default: none.
	PeerKeys [][]byte
	// PeerTLS is the configuration of the streams between nodes, for an authority of your own;
	// [peer.Files] makes one, and [peer.Options] lists the requirements. All nodes or none must set
	// it. Default: each process makes a key at its start, and publishes its fingerprint beside its
	// session at the arbiter. TLS 1.3 with these keys authenticates and encrypts all streams.
	// Either way a node gets no stream if the arbiter does not list its session.
	PeerTLS *tls.Config
	// Service is a text that the other nodes are told of this process, as [NodeInfo].Service. If
	// requests are to be forwarded to it, that is its base URL for HTTP, such as
	// http://10.0.0.3:8080. At most 256 printable ASCII characters, without spaces. Default:
	// nothing.
	Service string
	// Keepalive is how often the nodes ask each other for how long they answer for the keys that
	// they have granted to the asking one; a sixth of Takeover, if that is less (by default: each
	// 0.5 s). Where a node is silent for 2.5 times as long, holders of its keys have their holds
	// confirmed by the arbiter instead, and lose nothing. Default a tenth of SessionTTL, 1 s at
	// most; at least 10 ms.
	Keepalive time.Duration

	// MaxPerNode is how many keys of this node's partitions each other node may hold or wait for at
	// the same time. Further requests of that node are refused, which is logged once a minute: its
	// callers get [ErrUnavailable] at once, with this option's name. The count may be off by the
	// requests that begin and end within four RenewEvery, or by one near the limit. Default
	// 1,048,576. Negative: no limit.
	MaxPerNode int

	// Takeover is how long a node may be silent before other nodes, its guardians, have the arbiter
	// count it dead: the keys of a process that was killed can be locked again about as long after
	// (docs/takeover.md). The price: a process that stands still for 0.57 to 0.9 of it loses its
	// locks; without Takeover it may for up to SessionTTL - Margin. All nodes must have the same one;
	// those with another one do not guard each other, and end with SessionTTL. Less than
	// SessionTTL, at least 100 ms. Default 3 s, and off where SessionTTL is no longer than that.
	// Negative: off, a dead process is found dead after SessionTTL.
	Takeover time.Duration

	// Unwatched: other processes of this host do not watch this one. Otherwise, with Takeover, each
	// listens on an abstract socket of Linux, and others that are in the same network namespace see
	// its process end. Then its keys can be locked as soon as all nodes have answered, not after
	// Takeover (docs/takeover.md). What the process sent a moment before its end, to a database for
	// example, may be executed after that: see Fence.
	Unwatched bool

	// Debounce is how long the membership has to be unchanged before partitions change hands;
	// MaxDebounce limits how long changes can go on. Defaults 2 s and 10 s.
	Debounce, MaxDebounce time.Duration

	host wire.Host // of a simulation; nil: sockets
}

// maxService is the length of the longest Cluster.Service, in bytes.
const maxService = 256

// version returns a number that the nodes of a cluster must agree on, besides the namespace.
func (o *Options) version() uint64 { return 1<<32 | uint64(o.Partitions) }

func (o *Cluster) filled(ttl time.Duration) *Cluster {
	if o == nil {
		return nil
	}
	f := *o
	setDefault(&f.Keepalive, min(ttl/10, time.Second))
	setDefault(&f.MaxPerNode, 1<<20)
	setDefault(&f.Takeover, usualTakeover(ttl))
	setDefault(&f.Debounce, 2*time.Second)
	setDefault(&f.MaxDebounce, max(10*time.Second, f.Debounce))
	return &f
}

// takeover returns for how long promises last, 0 if this process takes no part.
func (o *Options) takeover() time.Duration {
	if o.Cluster == nil {
		return 0
	}
	return max(o.Cluster.Takeover, 0)
}

// promises returns how long promises last, and how much less they count for.
func (o *Options) promises() guardians.Times {
	d := o.takeover()
	return guardians.Times{Promise: d, Margin: guardians.MarginFor(d, o.SessionTTL, o.Margin) + clockNoise, Noise: clockNoise}
}

// clockNoise is by how much the ward's clock may run ahead while a promise lasts, as it adds up the
// longer step of the machine's two clocks at each reading. Where it runs ahead by more, a change of
// the set waits for another ping.
const clockNoise = time.Millisecond

// minTakeover is the shortest Takeover.
const minTakeover = 100 * time.Millisecond

// usualTakeover returns the default of Takeover. It is no part of SessionTTL: how long a process
// stands still depends on its machine. So where SessionTTL is that short there is none.
func usualTakeover(ttl time.Duration) time.Duration {
	if d := 3 * time.Second; d < ttl {
		return d
	}
	return -1
}

func (o *Cluster) validate(all *Options) error {
	if o == nil {
		return nil
	}
	if err := o.validatePeerKeys(); err != nil {
		return err
	}
	if o.Membership == nil {
		return errors.New("coord: Options.Cluster.Membership is missing: set it to gossip.Start of package github.com/holdfast-go/holdfast/gossip")
	}
	if len(o.Service) > maxService || strings.ContainsFunc(o.Service, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("coord: Options.Cluster.Service %s must be at most %d printable ASCII characters, without spaces",
			quoted(o.Service), maxService)
	}
	if err := errors.Join(validateAdvertise("GossipAdvertise", o.GossipAdvertise), validateAdvertise("PeerAdvertise", o.PeerAdvertise)); err != nil {
		return err
	}
	if o.Keepalive < 10*time.Millisecond {
		return fmt.Errorf("coord: Options.Cluster.Keepalive is %v, must be at least 10ms", o.Keepalive)
	}
	if o.Takeover > 0 && (o.Takeover < minTakeover || o.Takeover >= all.SessionTTL) {
		return fmt.Errorf("coord: Options.Cluster.Takeover is %v, must be at least 100ms and less than SessionTTL %v, or negative for none",
			o.Takeover, all.SessionTTL)
	}
	if trigger := o.Keepalive * 5 / 2; o.Keepalive > all.SessionTTL || trigger+2*all.CallTimeout >= all.lease()-all.RenewEvery {
		return fmt.Errorf("coord: 2.5 * Options.Cluster.Keepalive %v + 2 * CallTimeout %v must be less than SessionTTL %v - Margin %v - RenewEvery %v: "+
			"holds of an owner that is gone must be adopted in time", o.Keepalive, all.CallTimeout, all.SessionTTL, all.Margin, all.RenewEvery)
	}
	return nil
}

// validateObserver is validate for an observer: its other options do not count.
func (o *Cluster) validateObserver(*Options) error { return o.validatePeerKeys() }

// ours has the names of this package for the options of the packages ring and peer.
var ours = map[string]string{
	"Bind": "Cluster.Gossip", "Advertise": "Cluster.GossipAdvertise", "Keys": "Cluster.GossipKeys", "Seeds": "Cluster.Seeds",
	"Debounce": "Cluster.Debounce", "MaxDebounce": "Cluster.MaxDebounce", "Peer": "Cluster.PeerAdvertise", "Label": "Namespace",
	"Listen": "Cluster.Peer", "TLS": "Cluster.PeerTLS", "Keepalive": "Cluster.Keepalive",
}

// named makes an error name the option as the user does.
func (o *Cluster) named(err error) error {
	option := ""
	if e, ok := errors.AsType[*ring.OptionError](err); ok {
		option, err = e.Option, e.Err
	} else if e, ok := errors.AsType[*peer.OptionError](err); ok {
		option, err = e.Option, e.Err
	}
	if option == "Listen" && o.Peer == "" {
		option = "Bind" // the host is Gossip's
	}
	if name := ours[option]; name != "" {
		return fmt.Errorf("coord: Options.%s %w", name, err)
	}
	return fmt.Errorf("coord: New: %w", err)
}
