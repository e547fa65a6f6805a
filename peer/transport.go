package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/hostaddr"
)

// Transport keeps one stream with each of the other nodes. Its methods are safe for
// concurrent use.
type Transport struct {
	opts     Options
	listener net.Listener
	log      *limitedLog        // of events that concern nodes
	unknown  *limitedLog        // of inbound connections that have not authenticated
	wg       sync.WaitGroup     // every goroutine
	ctx      context.Context    // ends with Close
	cancel   context.CancelFunc //
	soon     chan struct{}      // capacity 1: FlushSoon was called
	rhythms  chan rhythm        // capacity 1: that SetKeepalive has set
	strange  chan struct{}      // a token for each inbound connection that has not authenticated yet
	dials    chan struct{}      // a token for each attempt to reach a node
	client   *tls.Config        // nil without TLS
	server   *tls.Config        // nil without TLS

	streams atomic.Pointer[map[string]*Stream] // those between Up and Down; the map is replaced, not changed

	mu       sync.Mutex
	closed   bool                  // protected by mu
	peers    map[string]*peer      // protected by mu, as are the peers themselves: nodes that are wanted or have a stream
	removed  map[string]struct{}   // protected by mu: nodes that SetPeers took away
	removals []string              // protected by mu: the same in order, to forget the oldest
	greeting map[net.Conn]struct{} // protected by mu: connections in the handshake
	from     map[netip.Addr]int    // protected by mu: inbound ones among them, by address
	gen      uint64                // protected by mu: the last stream's
}

const (
	maxGreeting   = 64  // inbound connections that have not authenticated
	maxFrom       = 16  // of them, from one address
	maxDials      = 16  // attempts to reach nodes at the same time
	maxStrangers  = 256 // streams with nodes that SetPeers has not named
	maxRemoved    = 1024
	greetingLimit = 2 * time.Second
)

// Start listens and returns a transport that accepts streams; it dials no node before
// [Transport.SetPeers]. The caller must call Close. The error says which option is not
// valid or why it cannot listen.
func Start(opts Options) (*Transport, error) {
	opts, err := opts.validate()
	if err != nil {
		return nil, err
	}
	l := opts.Listener
	if l == nil {
		if l, err = net.Listen("tcp", opts.Listen); err != nil {
			return nil, &OptionError{"Listen", err}
		}
	}
	t := &Transport{
		opts: opts, listener: l, log: newLimitedLog(opts.Logger), unknown: newLimitedLog(opts.Logger),
		soon:     make(chan struct{}, 1),
		rhythms:  make(chan rhythm, 1),
		strange:  make(chan struct{}, maxGreeting),
		dials:    make(chan struct{}, maxDials),
		from:     make(map[netip.Addr]int),
		peers:    make(map[string]*peer),
		removed:  make(map[string]struct{}),
		greeting: make(map[net.Conn]struct{}),
	}
	t.client, t.server = configs(opts.TLS)
	t.streams.Store(&map[string]*Stream{})
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.wg.Go(t.accept)
	t.wg.Go(t.keepalive)
	t.wg.Go(t.flushSoon)
	return t, nil
}

// Addr returns the address that the transport listens on, with the port it really has.
func (t *Transport) Addr() string { return t.listener.Addr().String() }

// Secured reports whether all streams are TLS, and a node proves its name in each handshake.
func (t *Transport) Secured() bool { return t.client != nil && t.opts.Verify != nil }

// Stream returns the stream with the node, nil if there is none. It takes no lock and
// allocates nothing. The stream may be closed at any time.
func (t *Transport) Stream(node string) *Stream { return (*t.streams.Load())[node] }

// Close closes all streams and waits for every goroutine, and so for the Down of every Up.
// It must not be called by the handler. It may be called again. The error is always nil.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.closed = true
	t.cancel()
	t.listener.Close()
	for c := range t.greeting {
		c.Close()
	}
	var open []*Stream
	for _, p := range t.peers {
		if p.cur != nil {
			open = append(open, p.cur) // those before it are closed already
		}
	}
	t.mu.Unlock()
	for _, s := range open {
		s.Close(ErrTransportClosed)
	}
	t.wg.Wait()
	return nil
}

// accept accepts connections until Close.
func (t *Transport) accept() {
	for {
		c, err := t.listener.Accept()
		if err != nil {
			if t.ctx.Err() != nil {
				return
			}
			t.log.warn("accept", "holdfast: cannot accept connections of other nodes", "error", err)
			t.sleep(50 * time.Millisecond) // no descriptors left, mostly
			continue
		}
		from := hostaddr.Source(c.RemoteAddr())
		if !t.admit(from) {
			c.Close()
			t.unknown.warn("busy "+from.String(), "holdfast: too many connections at once from one address that have not authenticated",
				"from", from.String(), "limit", maxFrom)
			continue
		}
		select {
		case t.strange <- struct{}{}:
			t.wg.Go(func() { t.welcome(c, from) })
		default:
			t.dismiss(from)
			c.Close()
			t.unknown.warn("busy", "holdfast: too many connections at once that have not authenticated", "limit", maxGreeting)
		}
	}
}

// welcome makes an inbound connection a stream, and lives its life.
func (t *Transport) welcome(c net.Conn, from netip.Addr) {
	v := t.conversation(c, "")
	s, prev, err := v.greet()
	<-t.strange
	t.dismiss(from)
	if s != nil {
		s.run(prev)
	} else if t.ctx.Err() == nil && !isQuiet(err) && !errors.Is(err, errSilent) {
		log, who := t.unknown, from.String()
		if t.opts.Verify != nil && v.proven {
			log, who = t.log, v.peer.node
		}
		log.warn(who+" "+logKey(err), "holdfast: a connection of another node is refused", "from", c.RemoteAddr().String(), "error", err)
	}
}

// admit notes an inbound connection, and reports whether its address may have one more.
func (t *Transport) admit(from netip.Addr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.from[from] >= maxFrom && from.IsValid() {
		return false
	}
	t.from[from]++
	return true
}

// dismiss forgets it.
func (t *Transport) dismiss(from netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.from[from]--; t.from[from] == 0 {
		delete(t.from, from)
	}
}

// sleep waits for d, or until Close.
func (t *Transport) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.ctx.Done():
	}
}
