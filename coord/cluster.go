package coord

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/peer"
	"github.com/holdfast-go/holdfast/ring"
)

// cluster is a coordinator's part of its cluster: its own node, the others, and the streams to
// them.
type cluster struct {
	c       *Coordinator
	members *members
	ring    ring.Membership
	net     *peer.Transport

	unreached unreached
	hearsay   hearsay

	self    selfNode
	streams streamBook
	wakes   wakes
	asked   askedBook
	heard   clusterNews
	begin   beginning
}

// selfNode is this node: its name and addresses, and its part in the cluster.
type selfNode struct {
	name      string
	told      string         // address of net that the others are told
	identity  *peer.Identity // nil with PeerTLS, and in a simulation
	secrets   secrets
	leaving   atomic.Bool
	observing *observing  // nil: this is a node
	draining  atomic.Bool // this node gives its partitions away, and takes none
	handovers handovers   // of partitions, to other nodes
	near      near
	adopting  adopting
}

// streamBook lists the streams to other nodes.
type streamBook struct {
	links   sync.Map            // by session: *link, of the streams that are up and have named their session
	mu      mutex[clusterRank]  // protects the fields below
	up      map[*link]bool      // all streams that are up, but for those of observers
	watched map[*link]time.Time // streams of observers, and since when they are up
	id      string              // the session that was last introduced on all of them
	ended   ends
}

// wakes are signals to the goroutines of a node.
type wakes struct {
	tick   chan struct{} // capacity 1: the balance is to be looked at
	dead   chan struct{} // capacity 1: so are the holders that are in the way: one may be dead
	adopts chan struct{} // capacity 1: there are holds to be adopted
}

// askedBook has the questions of other nodes.
type askedBook struct {
	questions chan asked    // of other nodes, for keepAnswering
	looks     chan struct{} // capacity 1: held by the one handshake of an observer that asks the arbiter
}

// clusterNews has figures of the last renewal, and of the last look at the holds.
type clusterNews struct {
	announces  atomic.Int64 // a time.Duration: the most that this node announces, from when it was asked
	graceLeft  atomic.Int64 // a time.Duration, as the last renewal says; 0 outside of Grace
	registered atomic.Int64 // sessions at the arbiter, as the last renewal says
	resting    atomic.Int64 // holds that rest on an owner's word, when they were last looked at
	pinged     atomic.Int64 // a lease.Moment: when all nodes were asked last
}

// unlimited is for nodes that have sessions without guardians.
const unlimited = time.Duration(1<<63 - 1)

// beginning is the state of a start, until the node has settled.
type beginning struct {
	ready    chan struct{} // closed when ring is set
	settling settling
	addrs    []string // that discover found last; only of the ring's goroutine
}

// frameVersions are the versions of the meaning of frames that this package speaks. A release that
// changes the meaning raises Newest, goes on speaking the version before, and asks
// [peer.Stream.Frames] where they differ.
var frameVersions = peer.Versions{Oldest: 1, Newest: 3}

// framesHint is the first version with [peer.Hint], and framesEnded with guardEnded.
const (
	framesHint  = 2
	framesEnded = 3
)

// startCluster begins to gossip and to listen. The node is Joining until it has a session.
func (c *Coordinator) startCluster(session string) (err error) {
	o := c.opts.Cluster
	x := &cluster{c: c}
	x.self.name = c.opts.Name + "/" + rand.Text()
	x.begin.ready = make(chan struct{})
	x.streams.up = make(map[*link]bool)
	x.members = newMembers(x)
	x.hearsay.init()
	x.asked.questions = make(chan asked, maxQuestions)
	x.asked.looks = make(chan struct{}, 1)
	x.heard.announces.Store(int64(unlimited))
	x.wakes.tick, x.wakes.dead, x.wakes.adopts = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	var at addresses
	if o.host == nil {
		at = o.addresses(c.hostAddress)
	}
	c.cluster = x // before a node connects
	streams := peer.Options{
		Node: x.self.name, Namespace: short(c.opts.Namespace), Version: c.opts.version(), Frames: frameVersions, Listen: at.peer, TLS: o.PeerTLS,
		Keepalive: o.Keepalive, Handler: x, Logger: c.opts.Logger,
	}
	if h := o.host; h != nil {
		if streams.Listener, err = h.Listen(); err != nil {
			return fmt.Errorf("coord: New: %w", err)
		}
		streams.Dial = h.Dial
	} else {
		streams.Verify = x.members.verify
		if o.PeerTLS == nil {
			if x.self.identity, err = o.newIdentity(); err != nil {
				return err
			}
			streams.TLS = x.self.identity.TLS()
		}
	}
	x.net, err = peer.Start(streams)
	if err != nil {
		return o.named(err)
	}
	x.self.told = withPort(at.peerTold, x.net.Addr())
	if o.host != nil {
		x.self.told = x.net.Addr()
	}
	x.show()
	keys := x.firstKeys()
	x.ring, err = o.Membership(ring.Options{
		Name: x.self.name, Partitions: c.opts.Partitions, Label: c.opts.Namespace, Bind: at.gossip, Advertise: at.gossipTold,
		Peer: x.self.told, Known: x.members.has, Gone: x.members.gone, Session: session, Seeds: o.Seeds, Keys: keys, Provisional: x.self.secrets.used != nil && o.host == nil, Discover: x.discover,
		Debounce: o.Debounce, MaxDebounce: o.MaxDebounce, Logger: c.opts.Logger,
	})
	if err != nil {
		c.life.stop(ErrClosed)
		_ = x.net.Close()
		x.hide()
		return o.named(err)
	}
	close(x.begin.ready)
	if o.host == nil {
		x.logAddresses(at)
	}
	if session != "" {
		_ = x.ring.SetState(ring.Active)
	}
	return nil
}

// longNamespace is the length of the longest namespace that nodes tell each other in full.
const longNamespace = 64

// short returns a namespace as nodes tell it to each other: a long one is cut, with a hash.
func short(namespace string) string {
	if len(namespace) <= longNamespace {
		return namespace
	}
	return namespace[:longNamespace-17] + "#" + strconv.FormatUint(hash(namespace), 16)
}

// session tells the others of this node's session, "" if it has none.
func (x *cluster) session(id string) {
	state := ring.Active
	switch {
	case id == "":
		state = ring.Joining
	case x.self.draining.Load():
		state = ring.Leaving
	}
	if !x.self.leaving.Load() {
		_ = x.ring.SetSession(id)
		_ = x.ring.SetState(state)
		if state == ring.Active && x.self.draining.Load() { // since a moment ago: the state that Drain has set would be lost
			_ = x.ring.SetState(ring.Leaving)
		}
	}
	x.streams.mu.Lock()
	x.streams.id = id
	for l := range x.streams.up {
		l.introduce(id)
	}
	x.streams.mu.Unlock()
	for _, l := range x.all() {
		l.s.Flush()
	}
	x.poke()
}

// poke makes the balance be looked at, and the holders that are in the way.
func (x *cluster) poke() {
	signal(x.wakes.tick)
	signal(x.wakes.dead)
}
