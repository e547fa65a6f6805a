package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/holdfast-go/holdfast/internal/hostaddr"
	"github.com/holdfast-go/holdfast/internal/unit"
	"github.com/holdfast-go/holdfast/ring"
)

// DefaultPort is the port of a seed that names none, if Options.Bind names none either.
const DefaultPort = 7946

func wrong(option, format string, args ...any) error {
	return &ring.OptionError{Option: option, Err: fmt.Errorf(format, args...)}
}

// settings are Options with the defaults filled in.
type settings struct {
	ring.Options
	bind      netip.AddrPort
	advertise netip.AddrPort // its port may be 0
	seedPort  uint16
}

func validate(o ring.Options) (settings, error) {
	s := settings{Options: o}
	s.Seeds = slices.Clone(o.Seeds)
	s.Keys = slices.Clone(o.Keys)
	for d, or := range map[*time.Duration]time.Duration{
		&s.RediscoverEvery: 5 * time.Second, &s.Debounce: 2 * time.Second, &s.MaxDebounce: max(10*time.Second, o.Debounce),
	} {
		if *d == 0 {
			*d = or
		}
	}
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case o.Name == "":
		return s, wrong("Name", "is missing")
	case o.Label == "":
		return s, wrong("Label", "is missing")
	case len(o.Label) > memberlist.LabelMaxSize:
		return s, wrong("Label", "has %d bytes, must have at most %d", len(o.Label), memberlist.LabelMaxSize)
	case s.Debounce < 0:
		return s, wrong("Debounce", "is %v, must not be negative", s.Debounce)
	case s.MaxDebounce < 0:
		return s, wrong("MaxDebounce", "is %v, must not be negative", s.MaxDebounce)
	case s.RediscoverEvery < 0:
		return s, wrong("RediscoverEvery", "is %v, must not be negative", s.RediscoverEvery)
	case s.MaxDebounce < s.Debounce:
		return s, wrong("MaxDebounce", "is %v, shorter than Debounce %v", s.MaxDebounce, s.Debounce)
	}
	if err := unit.Short(s.Debounce, time.Millisecond, "2 * time.Second"); err != nil {
		return s, &ring.OptionError{Option: "Debounce", Err: err}
	}
	if err := unit.Short(s.RediscoverEvery, time.Millisecond, "5 * time.Second"); err != nil {
		return s, &ring.OptionError{Option: "RediscoverEvery", Err: err}
	}
	if err := errors.Join(checkText("Name", o.Name, maxName), checkText("Session", o.Session, maxSession),
		checkText("Peer", o.Peer, maxPeer)); err != nil {
		return s, err
	}
	for i, k := range o.Keys {
		if err := memberlist.ValidateKey(k); err != nil {
			return s, wrong("Keys", "key %d has %d bytes, must have 16, 24 or 32", i, len(k))
		}
	}
	return s, s.addresses(s.localAddr)
}

// addresses chooses the addresses to bind and to advertise.
func (s *settings) addresses(local func() netip.Addr) error {
	var err error
	s.bind = netip.AddrPortFrom(netip.Addr{}, 0)
	if s.Bind == "" {
		s.bind = netip.AddrPortFrom(local(), 0)
	} else if s.bind, err = parseAddrPort("Bind", s.Bind); err != nil {
		return err
	}
	s.advertise = netip.AddrPortFrom(s.bind.Addr(), 0)
	if s.Advertise != "" {
		if s.advertise, err = parseAddrPort("Advertise", s.Advertise); err != nil {
			return err
		}
		if s.advertise.Addr().IsUnspecified() {
			return wrong("Advertise", "%q: others cannot reach all interfaces", s.Advertise)
		}
	} else if s.bind.Addr().IsUnspecified() {
		s.advertise = netip.AddrPortFrom(local(), 0)
	}
	s.seedPort = DefaultPort
	if p := s.bind.Port(); p != 0 {
		s.seedPort = p
	}
	for _, x := range s.Seeds {
		if _, err := parseSeed(x, s.seedPort); err != nil {
			return &ring.OptionError{Option: "Seeds", Err: err}
		}
	}
	return nil
}

// parseAddrPort: an IP and no name, since memberlist binds and advertises IPs.
func parseAddrPort(what, s string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return netip.AddrPort{}, wrong(what, "%q is not IP:port", s)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, wrong(what, "%q: the port must be 0 to 65535", s)
	}
	if host == "" {
		return netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(n)), nil
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Zone() != "" || addr.IsMulticast() {
		return netip.AddrPort{}, wrong(what, "%q: %q is not the IP of an interface", s, host)
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), nil
}

// localAddr returns the address that other machines reach this one at, as far as can be told
// without looking up names.
func (s *settings) localAddr() netip.Addr {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	a := hostaddr.Choose(ctx, s.Seeds).Addr
	if len(s.Keys) == 0 && !hostaddr.Private(a) {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return a
}
