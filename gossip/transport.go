package gossip

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/holdfast-go/holdfast/internal/hostaddr"
	"github.com/holdfast-go/holdfast/ring"
)

// A transport is memberlist's own one, but it owns its connections: when it shuts down, dialling
// and all streams end. With memberlist's alone a goroutine stays for each until it times out. Its
// screen looks at all arriving messages.
type transport struct {
	*memberlist.NetTransport
	screen  screen
	log     *logWriter
	streams chan net.Conn
	packets chan *memberlist.Packet
	cut     func(to string) bool // for tests: nothing gets to this address. Nil: all arrives

	ctx    context.Context // ends the dialling
	cancel context.CancelFunc
	wg     sync.WaitGroup // accept and filter

	mu      sync.Mutex
	conns   map[*stream]struct{} // open ones; guarded by mu
	inbound int                  // how many of them others have opened; guarded by mu
	from    map[netip.Addr]int   // the same by address; guarded by mu
	closed  bool                 // guarded by mu
}

// maxStreams limits the streams that others have opened, maxFrom those of one address: a host that
// opens more must not keep nodes out, which would believe to be alone. Each is closed after some
// seconds; a node that is refused tries again.
const maxStreams, maxFrom = 16, 12

var errTransport = errors.New("gossip: the gossip has ended, or has too many streams open")

func listen(at netip.AddrPort, s screen, to *logWriter, logger *log.Logger, cut func(string) bool) (*transport, error) {
	config := &memberlist.NetTransportConfig{
		BindAddrs: []string{at.Addr().String()}, BindPort: int(at.Port()), Logger: logger,
	}
	// A free TCP port is not always a free UDP port.
	attempts := 1
	if at.Port() == 0 {
		attempts = 10
	}
	for {
		inner, err := memberlist.NewNetTransport(config)
		if attempts--; err != nil && attempts > 0 {
			continue
		}
		if err != nil {
			return nil, &ring.OptionError{Option: "Bind", Err: fmt.Errorf("%v: %w", at, err)}
		}
		t := &transport{
			NetTransport: inner, screen: s, log: to, cut: cut,
			streams: make(chan net.Conn), packets: make(chan *memberlist.Packet), conns: make(map[*stream]struct{}),
			from: make(map[netip.Addr]int),
		}
		t.ctx, t.cancel = context.WithCancel(context.Background())
		t.wg.Go(t.accept)
		t.wg.Go(t.filter)
		return t, nil
	}
}

func (t *transport) accept() {
	for {
		select {
		case conn := <-t.NetTransport.StreamCh():
			s, err := t.own(conn, true)
			if err != nil {
				continue
			}
			select {
			case t.streams <- s:
			case <-t.ctx.Done():
				_ = s.Close()
				return
			}
		case <-t.ctx.Done():
			return
		}
	}
}

// filter hands on the packets that the screen lets through.
func (t *transport) filter() {
	for {
		select {
		case p := <-t.NetTransport.PacketCh():
			if err := t.screen.packet(p.Buf); err != nil {
				t.log.refused(err, p.From)
				continue
			}
			select {
			case t.packets <- p:
			case <-t.ctx.Done():
				return
			}
		case <-t.ctx.Done():
			return
		}
	}
}

func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if t.cut != nil && t.cut(a.Addr) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	dialer := net.Dialer{Timeout: timeout}
	conn, err := dialer.DialContext(t.ctx, "tcp", a.Addr)
	if err != nil {
		return nil, err // unwrapped: memberlist looks at its type
	}
	return t.own(conn, false)
}

func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	if t.cut != nil && t.cut(a.Addr) {
		return time.Now(), nil
	}
	return t.NetTransport.WriteToAddress(b, a)
}

func (t *transport) WriteTo(b []byte, addr string) (time.Time, error) {
	return t.WriteToAddress(b, memberlist.Address{Addr: addr})
}

func (t *transport) Shutdown() error {
	// The listeners first: they wait until their received messages are taken, and accept and
	// memberlist still take them.
	err := t.NetTransport.Shutdown()
	t.cancel()
	t.wg.Wait()
	t.mu.Lock()
	t.closed = true
	conns := t.conns
	t.conns = nil
	t.mu.Unlock()
	for s := range conns {
		_ = s.Conn.Close()
	}
	return err
}

func (t *transport) own(conn net.Conn, inbound bool) (net.Conn, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &stream{Conn: conn, t: t, inbound: inbound, from: hostaddr.Source(conn.RemoteAddr())}
	if t.closed || inbound && (t.inbound >= maxStreams || s.from.IsValid() && t.from[s.from] >= maxFrom) {
		_ = conn.Close()
		return nil, errTransport
	}
	t.conns[s] = struct{}{}
	if inbound {
		t.inbound++
		t.from[s.from]++
	}
	return s, nil
}

// A stream carries one message each way. Only one goroutine reads from it.
type stream struct {
	net.Conn
	t       *transport
	inbound bool
	from    netip.Addr // as of hostaddr.Source
	message io.Reader  // the message that has come; nil: none yet
	refused error      // by the screen
}

// Read reads the message that the screen lets through.
func (s *stream) Read(b []byte) (int, error) {
	if s.refused == nil && s.message == nil {
		s.message, s.refused = s.t.screen.stream(s.Conn, !s.inbound)
	}
	if s.refused != nil {
		return 0, s.refused
	}
	return s.message.Read(b)
}

func (s *stream) Close() error {
	s.t.mu.Lock()
	if _, open := s.t.conns[s]; open && s.inbound {
		s.t.inbound--
		if s.t.from[s.from]--; s.t.from[s.from] == 0 {
			delete(s.t.from, s.from)
		}
	}
	delete(s.t.conns, s)
	s.t.mu.Unlock()
	return s.Conn.Close()
}
