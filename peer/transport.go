package peer

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Transport keeps one stream with each of the other nodes. Its methods are safe for
// concurrent use.
type Transport struct {
	opts     Options
	listener net.Listener
	log      *limitedLog
	wg       sync.WaitGroup     // every goroutine
	ctx      context.Context    // ends with Close
	cancel   context.CancelFunc //
	soon     chan struct{}      // capacity 1: FlushSoon was called
	strange  chan struct{}      // a token for each inbound connection that has not authenticated yet

	streams atomic.Pointer[map[string]*Stream] // those between Up and Down; the map is replaced, not changed

	mu       sync.Mutex
	closed   bool                  // protected by mu
	peers    map[string]*peer      // protected by mu, and what they point to: nodes that are wanted or have a stream
	removed  map[string]struct{}   // protected by mu: nodes that SetPeers took away
	removals []string              // protected by mu: the same in order, to forget the oldest
	greeting map[net.Conn]struct{} // protected by mu: connections in the handshake
	gen      uint64                // protected by mu: the last stream's
}

const (
	maxGreeting   = 64  // inbound connections that have not authenticated
	maxStrangers  = 256 // streams with nodes that SetPeers has not named
	maxRemoved    = 1024
	greetingLimit = 2 * time.Second
)

// Start listens and returns a transport that accepts streams; it dials nobody before
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
		opts: opts, listener: l, log: newLimitedLog(opts.Logger),
		soon:     make(chan struct{}, 1),
		strange:  make(chan struct{}, maxGreeting),
		peers:    make(map[string]*peer),
		removed:  make(map[string]struct{}),
		greeting: make(map[net.Conn]struct{}),
	}
	t.streams.Store(&map[string]*Stream{})
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.wg.Go(t.accept)
	t.wg.Go(t.keepalive)
	t.wg.Go(t.flushSoon)
	return t, nil
}

// Addr returns the address that the transport listens on, with the port it really has.
func (t *Transport) Addr() string { return t.listener.Addr().String() }

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
			t.log.warn("accept", "peer: cannot accept connections", "error", err)
			t.sleep(50*time.Millisecond, nil) // no descriptors left, mostly
			continue
		}
		select {
		case t.strange <- struct{}{}:
			t.wg.Go(func() { t.welcome(c) })
		default:
			c.Close()
			t.log.warn("busy", "peer: too many connections at once that have not authenticated", "limit", maxGreeting)
		}
	}
}

// welcome makes an inbound connection a stream, and lives its life.
func (t *Transport) welcome(c net.Conn) {
	s, prev, err := t.greet(c, "", "")
	<-t.strange
	if s != nil {
		s.run(prev)
	} else if t.ctx.Err() == nil && !isQuiet(err) && !errors.Is(err, errSilent) {
		host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		t.log.warn(host+" "+logKey(err), "peer: inbound connection refused", "from", c.RemoteAddr().String(), "error", err)
	}
}

// sleep waits for d, or until more has a token, or Close.
func (t *Transport) sleep(d time.Duration, more <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-more:
	case <-t.ctx.Done():
	}
}
