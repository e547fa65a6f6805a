package gossip

import (
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"
)

// FuzzSeed: a decoded seed is a host and a port that can be written, and are read as the same
// again.
func FuzzSeed(f *testing.F) {
	for _, s := range []string{
		"10.0.0.1", "10.0.0.1:7946", "::1", "[::1]", "[::1]:7946", "name", "name:1", "", ":1", "[", "]", "[]", "[]:1", "a:b:c", "fe80::1%eth0",
		"[fe80::1%eth0]:1", "0.0.0.0", "224.0.0.1", "::ffff:10.0.0.1", "name:0", "name:65536", "name:+1", "na me", "a/b", "[name]:1", "1.2.3.4.5",
	} {
		f.Add(s, uint16(DefaultPort))
	}
	f.Fuzz(func(t *testing.T, s string, port uint16) {
		got, err := parseSeed(s, port)
		if err != nil {
			return
		}
		host := got.host
		if got.addr.IsValid() {
			host = got.addr.String()
		}
		if host == "" || !printable(host) || got.addr.IsUnspecified() || got.addr.IsMulticast() || got.addr.Is4In6() {
			t.Errorf("%q: %+v", s, got)
		}
		again, err := parseSeed(net.JoinHostPort(host, strconv.Itoa(int(got.port))), port)
		if got.port != 0 && (err != nil || again != got) {
			t.Errorf("%q is %+v, then %+v, %v", s, got, again, err)
		}
	})
}

// FuzzAddrPort: the same of the addresses that a node binds and advertises.
func FuzzAddrPort(f *testing.F) {
	for _, s := range []string{":0", "127.0.0.1:0", "[::]:1", "[::ffff:1.2.3.4]:1", "0.0.0.0:65535", "localhost:1", "1.2.3.4", "[fe80::1%1]:1", "224.0.0.1:1", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseAddrPort("Bind", s)
		if err != nil {
			return
		}
		again, err := parseAddrPort("Bind", got.String())
		if err != nil || again != got || got.Addr().Zone() != "" || got.Addr() != got.Addr().Unmap() || got == (netip.AddrPort{}) {
			t.Errorf("%q is %v, then %v, %v", s, got, again, err)
		}
	})
}

// FuzzPackets: a node neither panics nor takes a member in, whatever a stranger sends by UDP and by
// TCP. One node's gossip is open, and the others' is encrypted. The third gets the bytes under its
// key, as from a member or a process with a copy of the arbiter's data. The label makes messages
// get further.
func FuzzPackets(f *testing.F) {
	nodes := make([]*Ring, 3)
	secret := key(1, 32)
	for i, keys := range [][][]byte{nil, {secret}, {secret}} {
		opts := options(strconv.Itoa(i))
		opts.Keys = keys
		nodes[i] = begin(f, opts, hooks{})
		await(f, nodes[i], "its first view", sees(nodes[i].Name()))
	}
	for kind := range byte(16) {
		f.Add([]byte{kind, 0x81, 0xa4, 'N', 'o', 'd', 'e', 0xa1, 'x'})
	}
	f.Add([]byte{4, 0x86, 0xa4, 'A', 'd', 'd', 'r', 0xa4, 127, 0, 0, 1, 0xa4, 'N', 'o', 'd', 'e', 0xa1, 'x'})
	f.Add([]byte("\x06\x83\xa5Nodes\x01\xacUserStateLen\x00\xa4Join\xc3\x82\xa4Name\xa1x\xa4Addr\xc4\x04\x7f\x00\x00\x01"))
	f.Add([]byte("\x07\x02\x00\x02\x00\x02\x04\x80\x05\x80"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1300 {
			return
		}
		throw(t, nodes[0], b, b)
		throw(t, nodes[1], b, b)
		throw(t, nodes[0], packetOf(t, "test", nil, b), streamOf(t, "test", nil, b))
		throw(t, nodes[1], packetOf(t, "test", nil, b), streamOf(t, "test", nil, b))
		throw(t, nodes[2], packetOf(t, "test", secret, b), streamOf(t, "test", secret, b))
		if n := len(nodes[1].Members()); n != 1 {
			t.Errorf("%q: %d members", b, n)
		}
	})
}

// throw sends a packet, and something by TCP.
func throw(t *testing.T, r *Ring, packet, stream []byte) {
	u, err := net.Dial("udp", r.Gossip())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = u.Write(packet)
	_ = u.Close()
	c, err := net.DialTimeout("tcp", r.Gossip(), 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write(stream)
	_ = c.Close()
}
