// Package hostaddr chooses the address of this machine that other machines reach it at.
package hostaddr

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// A Choice is an address, and why it was chosen, for logs.
type Choice struct {
	Addr   netip.Addr
	Reason string
}

// Choose returns the address that the machine uses towards the first target that has a route: a
// host, or host and port. Without one it is the address towards the Internet, otherwise the first
// one of the interfaces, IPv4 before IPv6, and then a private address goes before a public one.
// Choose sends nothing but the look-up of names, which ends with ctx and is left out where the
// machine has one address only. It returns a loopback address if there is no other.
func Choose(ctx context.Context, targets []string) Choice {
	return choose(ctx, targets, machine{interfaces, source, net.DefaultResolver.LookupNetIP})
}

// machine is what Choose asks.
type machine struct {
	addrs  func() []netip.Addr                    // of the interfaces that are up
	source func(to netip.Addr) (netip.Addr, bool) // of packets to an address
	lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// The default routes lead to addresses for documentation, which no host has.
var internet = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}

func choose(ctx context.Context, targets []string, m machine) Choice {
	all := m.addrs()
	slices.SortStableFunc(all, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	private, usable := []netip.Addr(nil), []netip.Addr(nil)
	for _, a := range all {
		if !a.IsGlobalUnicast() { // those of private networks are
			continue
		}
		if usable = append(usable, a); Private(a) {
			private = append(private, a)
		}
	}
	// An IPv4 link-local address is for machines on one cable.
	last := slices.IndexFunc(all, func(a netip.Addr) bool { return a.Is4() && a.IsLinkLocalUnicast() })
	switch {
	case len(usable) == 1:
		return Choice{Addr: usable[0], Reason: "the only address of this machine"}
	case len(usable) == 0 && last >= 0:
		return Choice{Addr: all[last], Reason: "the only address of this machine"}
	case len(usable) == 0:
		c := Choice{Addr: netip.AddrFrom4([4]byte{127, 0, 0, 1}), Reason: "this machine has no other address"}
		if !slices.Contains(all, c.Addr) && slices.Contains(all, netip.IPv6Loopback()) {
			c.Addr = netip.IPv6Loopback()
		}
		return c
	}
	for _, target := range targets {
		for _, to := range m.resolve(ctx, target) {
			if from, ok := m.source(to); ok && slices.Contains(usable, from) {
				return Choice{Addr: from, Reason: "the route to " + target}
			}
		}
	}
	if len(private) > 0 {
		usable = private
	}
	for _, to := range internet {
		if from, ok := m.source(to); ok && slices.Contains(usable, from) {
			return Choice{Addr: from, Reason: "the default route"}
		}
	}
	return Choice{Addr: usable[0], Reason: "the first address of this machine"}
}

// resolve returns the addresses of a target, IPv4 first, so that all machines take the same family.
func (m machine) resolve(ctx context.Context, target string) []netip.Addr {
	host := target
	if h, _, err := net.SplitHostPort(target); err == nil {
		host = h
	}
	if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return []netip.Addr{addr.Unmap()}
	}
	if host == "" || ctx.Err() != nil {
		return nil
	}
	found, _ := m.lookup(ctx, "ip", host)
	for i := range found {
		found[i] = found[i].Unmap()
	}
	slices.SortStableFunc(found, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	return found
}

// source asks the routing table: connecting a UDP socket sends nothing.
func source(to netip.Addr) (netip.Addr, bool) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9)))
	if err != nil {
		return netip.Addr{}, false
	}
	defer conn.Close()
	from, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	return from.AddrPort().Addr().Unmap().WithZone(""), true
}

// interfaces returns the addresses of the interfaces that are up, in their order.
func interfaces() (all []netip.Addr) {
	devices, err := net.Interfaces()
	if err != nil {
		return nil
	}
	for _, d := range devices {
		if d.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, err := d.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok {
				if addr, ok := netip.AddrFromSlice(n.IP); ok {
					all = append(all, addr.Unmap())
				}
			}
		}
	}
	return all
}

// shared is for networks behind a provider's NAT (RFC 6598), such as those of pods.
var shared = netip.MustParsePrefix("100.64.0.0/10")

// Private reports whether an address cannot be reached from the Internet, as far as its range
// tells.
func Private(a netip.Addr) bool { return a.IsPrivate() || shared.Contains(a) || !a.IsGlobalUnicast() }
