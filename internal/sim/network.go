package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/lease"
	"github.com/holdfast-go/holdfast/peer"
)

var (
	errUnreachable = errors.New("sim: no route to host")
	errReset       = errors.New("sim: connection reset by peer")
)

// network connects the hosts. Each pair of hosts has a link that can be cut, in one direction or in
// both.
type network struct {
	mu       sync.Mutex // protects the fields below; nothing blocks while it is held
	rng      *rand.Rand
	hosts    map[string]*host // by address of the listener
	cut      map[[2]*host]bool
	latency  time.Duration // at most, of one direction
	exact    bool          // it is as long as that
	machines []*machine
	bad      func(format string, args ...any)
}

func newNetwork(seed uint64) *network {
	return &network{
		rng: rand.New(rand.NewPCG(seed, 1)), hosts: make(map[string]*host), cut: make(map[[2]*host]bool),
		latency: usual,
	}
}

// host is a node's place in the network, for one start of it. It implements [wire.Host] and
// [gossiphost.Host].
type host struct {
	net    *network
	addr   string
	accept chan *conn // connections that were dialled
	gone   chan struct{}
	*clock
	saw func(lease.Sight) // nil: its node's decisions are not looked at

	wrote    atomic.Int64 // how often it has written to a connection
	replaced atomic.Bool  // another host has its address, and resets data that is sent to this one

	on     *machine      // nil: no other node sees this one end
	over   chan struct{} // closed when its end is to be seen
	broke  chan struct{} // closed when connections of those that watch it break; protected by net.mu
	hidden bool          // it is not seen any more; protected by net.mu
	ended  atomic.Bool   // it is dead, and what it has sent arrives

	dead  bool           // protected by net.mu
	conns map[*conn]bool // protected by net.mu: this host's ends

	gossip *gossip // nil until it gossips; protected by net.mu
}

// Ended implements [wire.Witness]: nodes of one version send each other nothing that ends a stream.
func (h *host) Ended(err error) {
	if errors.Is(err, peer.ErrProtocol) {
		h.net.bad("a stream to another node ends: %v", err)
	}
}

// Saw takes a decision of the node, with the build tag simulation.
func (h *host) Saw(x lease.Sight) {
	if h.saw != nil {
		h.saw(x)
	}
}

func (n *network) newHost() *host { return n.newHostAt("") }

// newHostAt returns one in the place of the host that has had the address; at a new one, if it is
// empty.
func (n *network) newHostAt(addr string) *host {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := &host{net: n, accept: make(chan *conn, 64), gone: make(chan struct{}), over: make(chan struct{}), broke: make(chan struct{}), conns: make(map[*conn]bool)}
	if h.addr = addr; addr == "" {
		h.addr = fmt.Sprintf("127.0.%d.%d:1", len(n.hosts)/250, 1+len(n.hosts)%250)
	} else {
		n.hosts[addr].replaced.Store(true)
	}
	n.hosts[h.addr] = h
	return h
}

// passes reports whether data that a sends arrives at b. n.mu is held.
func (n *network) passes(a, b *host) bool { return !a.dead && !b.dead && !n.cut[[2]*host{a, b}] }

// setCut cuts or mends one direction.
func (n *network) setCut(a, b *host, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if cut {
		n.cut[[2]*host{a, b}] = true
		return
	}
	delete(n.cut, [2]*host{a, b})
	for c := range b.conns {
		if c.there == a {
			c.in.poke()
		}
	}
}

// heal mends all links.
func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
	for _, h := range n.hosts {
		for c := range h.conns {
			c.in.poke()
		}
	}
}

func (n *network) setLatency(most time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.latency, n.exact = most, false
}

// setExactly makes all data be on their way for so long.
func (n *network) setExactly(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.latency, n.exact = d, true
}

// die makes a host fall silent: nothing reaches it, and nothing comes from it, not even a reset.
func (h *host) die() {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	if !h.dead {
		h.dead = true
		close(h.gone)
	}
}

// killed makes a host's process end: its connections end, and it falls silent.
func (h *host) killed() {
	h.net.mu.Lock()
	others := make(map[*host]bool)
	for c := range h.conns {
		others[c.there] = true
	}
	h.net.mu.Unlock()
	for other := range others {
		h.net.reset(h, other)
	}
	h.die()
}

// bury closes a dead host's own ends of its connections.
func (h *host) bury() {
	h.net.mu.Lock()
	var mine []*conn
	for c := range h.conns {
		mine = append(mine, c)
	}
	h.net.mu.Unlock()
	for _, c := range mine {
		c.Close()
	}
}

// reset breaks the connections between two hosts.
func (n *network) reset(a, b *host) {
	n.mu.Lock()
	var both []*conn
	for c := range a.conns {
		if c.there == b {
			both = append(both, c, c.other)
		}
	}
	n.mu.Unlock()
	for _, c := range both {
		c.fail(errReset)
	}
	a.breaks()
	b.breaks()
}

// late returns for how long data is on its way.
func (n *network) late() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.exact {
		return n.latency
	}
	return latency(n.rng, n.latency)
}

// usual is how long data is on its way, on average, unless there is a reason for more.
const usual = time.Millisecond

// latency draws one. The usual ones are whole milliseconds, none among them, so that many things
// happen at the same moment: each moment costs a simulation as much as its events.
func latency(r *rand.Rand, most time.Duration) time.Duration {
	if most == usual {
		return time.Duration(r.Int64N(3)) * time.Millisecond
	}
	return most/10 + time.Duration(r.Int64N(int64(most)))
}

// spread is how long news take to reach a node by gossip.
func (n *network) spread() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return 40*time.Millisecond + time.Duration(n.rng.Int64N(int64(400*time.Millisecond)))
}

// Listen implements [wire.Host].
func (h *host) Listen() (net.Listener, error) {
	return listener{h, make(chan struct{}), new(sync.Once)}, nil
}

type listener struct {
	h      *host
	closed chan struct{}
	once   *sync.Once
}

func (l listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.h.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l listener) Addr() net.Addr { return addr(l.h.addr) }

type addr string

func (a addr) Network() string { return "sim" }
func (a addr) String() string  { return string(a) }

// Dial implements [wire.Host].
func (h *host) Dial(ctx context.Context, to string) (net.Conn, error) {
	if err := pause(ctx, h.net.late()+h.left()); err != nil {
		return nil, err
	}
	h.net.mu.Lock()
	there := h.net.hosts[to]
	if there == nil || !h.net.passes(h, there) || !h.net.passes(there, h) {
		h.net.mu.Unlock()
		<-ctx.Done() // as a packet that is dropped
		return nil, errors.Join(errUnreachable, ctx.Err())
	}
	mine := &conn{here: h, there: there, in: newHalf()}
	its := &conn{here: there, there: h, in: newHalf(), other: mine}
	mine.other = its
	h.conns[mine], there.conns[its] = true, true
	h.net.mu.Unlock()
	select {
	case there.accept <- its:
		return mine, nil
	default:
		mine.Close()
		return nil, errUnreachable
	}
}

// brief is the longest pause that is not interrupted.
const brief = 3 * time.Millisecond

func pause(ctx context.Context, d time.Duration) error {
	if d <= brief { // limits of ctx are longer
		if d > 0 {
			time.Sleep(d)
		}
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
