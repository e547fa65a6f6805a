package hostaddr

import (
	"net"
	"net/netip"
)

// Source returns what connections from an address are counted by: of IPv6 the network, as a host
// has many addresses there. It is zero for a connection of a simulation.
func Source(from net.Addr) netip.Addr {
	tcp, ok := from.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	addr := tcp.AddrPort().Addr().Unmap()
	if addr.Is6() {
		net64, _ := addr.WithZone("").Prefix(64) // of an IPv6 address it cannot fail
		return net64.Addr()
	}
	return addr
}
