package gossip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// lookup finds a host's addresses, as net.Resolver.LookupNetIP does with network "ip".
type lookup func(ctx context.Context, host string) ([]netip.Addr, error)

func lookupHost(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// A seed is an address, or a name that may stand for many, with a port.
type seed struct {
	addr netip.Addr // not valid: look host up
	host string
	port uint16
}

// parseSeed reads 10.0.0.1, 10.0.0.1:7946, ::1, [::1], [::1]:7946, name, name:7946.
func parseSeed(s string, port uint16) (seed, error) {
	host := s
	switch addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")); {
	case err == nil && strings.HasPrefix(s, "[") == strings.HasSuffix(s, "]"):
		host = addr.String()
	case strings.Contains(s, ":"):
		h, p, err := net.SplitHostPort(s)
		if err != nil {
			return seed{}, fmt.Errorf("address %q: not host, host:port or [IPv6]:port", s)
		}
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return seed{}, fmt.Errorf("address %q: the port must be 1 to 65535", s)
		}
		host, port = h, uint16(n)
	}
	if host == "" || !printable(host) || strings.ContainsAny(host, "[]/") {
		return seed{}, fmt.Errorf("address %q has no host", s)
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		if !hostname(host) {
			return seed{}, fmt.Errorf("address %q: %q is neither an IP nor a host name", s, host)
		}
		return seed{host: host, port: port}, nil
	}
	if addr.Zone() != "" || addr.IsUnspecified() || addr.IsMulticast() {
		return seed{}, fmt.Errorf("address %q: one host's address without a zone is needed", s)
	}
	return seed{addr: addr.Unmap(), port: port}, nil
}

// hostname reports whether s is a name that DNS may know: letters, digits, hyphens and underscores
// between dots. Other scripts need their ASCII form (xn--).
func hostname(s string) bool {
	s = strings.TrimSuffix(s, ".")
	if len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		if strings.ContainsFunc(label, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
		}) {
			return false
		}
	}
	return true
}

// resolve turns seeds into addresses, sorted, each one once. The error names the seeds that cannot
// be resolved, and the rest is returned all the same.
func resolve(ctx context.Context, seeds []string, port uint16, find lookup) ([]netip.AddrPort, error) {
	var addrs []netip.AddrPort
	var errs []error
	for _, s := range seeds {
		x, err := parseSeed(s, port)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if x.addr.IsValid() {
			addrs = append(addrs, netip.AddrPortFrom(x.addr, x.port))
			continue
		}
		found, err := find(ctx, x.host)
		if err != nil {
			errs = append(errs, fmt.Errorf("seed %q: %w", s, err))
		}
		for _, a := range found {
			addrs = append(addrs, netip.AddrPortFrom(a.Unmap().WithZone(""), x.port))
		}
	}
	slices.SortFunc(addrs, netip.AddrPort.Compare)
	return slices.Compact(addrs), errors.Join(errs...)
}
