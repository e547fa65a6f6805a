package coord

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/hostaddr"
)

// addresses has the addresses that a node binds, and those that it tells the others. Both ports
// have the same host, unless the options say otherwise.
type addresses struct {
	gossip     string // to bind: IP:port
	gossipTold string // IP:port; port 0: the one that is bound
	peer       string // to bind: host:port
	peerTold   string // host:port; port 0: the one that is bound
	reason     string // why the host was chosen, for the log; empty: the options name it
}

// addresses returns the addresses of the options, and chooses those that they leave open. choose
// returns the machine's address towards other machines; it is not called where the options name
// one.
func (o *Cluster) addresses(choose func() hostaddr.Choice) addresses {
	a := addresses{gossip: o.Gossip, gossipTold: o.GossipAdvertise, peer: o.Peer, peerTold: o.PeerAdvertise}
	here := func() string {
		c := choose()
		a.reason = c.Reason
		return c.Addr.String()
	}
	if a.gossip == "" {
		host := ipOf(o.Peer)
		if host == "" {
			host = here()
		}
		a.gossip = net.JoinHostPort(host, "0")
	}
	if a.peer == "" {
		host, _, _ := net.SplitHostPort(a.gossip)
		a.peer = net.JoinHostPort(host, "0")
	}
	// The others are told the first of these that names one host.
	host := ""
	for _, s := range []string{o.GossipAdvertise, o.Gossip, o.PeerAdvertise, o.Peer, a.gossip} {
		if host = ipOf(s); host != "" {
			break
		}
	}
	if host == "" {
		host = here()
	}
	if a.gossipTold == "" {
		a.gossipTold = net.JoinHostPort(host, "0")
	}
	if a.peerTold == "" {
		if own, _, err := net.SplitHostPort(o.Peer); err == nil && own != "" && !unspecified(own) {
			host = own
		}
		a.peerTold = net.JoinHostPort(host, "0")
	}
	return a
}

// ipOf returns the host of host:port if it is the IP of one host, otherwise "".
func ipOf(s string) string {
	host, _, err := net.SplitHostPort(s)
	if err != nil {
		return ""
	}
	if ip, err := netip.ParseAddr(host); err != nil || ip.IsUnspecified() {
		return ""
	}
	return host
}

func unspecified(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsUnspecified()
}

// withPort puts the port that is bound in the place of port 0.
func withPort(told, bound string) string {
	host, port, err := net.SplitHostPort(told)
	if err != nil || port != "0" {
		return told
	}
	_, port, _ = net.SplitHostPort(bound)
	return net.JoinHostPort(host, port)
}

func validateAdvertise(option, s string) error {
	if s == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(s)
	if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || host == "" {
		return fmt.Errorf("coord: Options.Cluster.%s %s is not host:port with a port of 0 to 65535", option, quoted(s))
	}
	if unspecified(host) {
		return fmt.Errorf("coord: Options.Cluster.%s %s: other nodes cannot reach all interfaces: give the address of one",
			option, quoted(s))
	}
	return nil
}

// hostAddress chooses the machine's address: that of the way to the seeds, or to the arbiter.
func (c *Coordinator) hostAddress() hostaddr.Choice {
	o := c.opts.Cluster
	targets := o.Seeds
	if l, ok := c.remote.arbiter.(fallback.Locator); ok {
		targets = append(targets[:len(targets):len(targets)], l.Servers()...)
	}
	limit := c.opts.CallTimeout
	if c.opts.StartUnavailable {
		limit = min(limit, 100*time.Millisecond) // New returns at once
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return hostaddr.Choose(ctx, targets)
}

// atServers returns the arbiter's servers for the text of an error, "" if they are not known. The
// part before an "@" is left out: a URL in the place of an address may have a password there.
func (c *Coordinator) atServers() string {
	l, ok := c.remote.arbiter.(fallback.Locator)
	if !ok {
		return ""
	}
	servers := slices.Clone(l.Servers())
	for i, s := range servers {
		servers[i] = s[strings.LastIndexByte(s, '@')+1:]
	}
	if len(servers) == 0 {
		return ""
	}
	return " at " + strings.Join(servers, ", ")
}

// protection describes the protection of the started gossip and streams against strangers.
func (x *cluster) protection() string {
	gossip, streams := "gossip by the namespace's secret", "streams by keys that the arbiter lists"
	keys, shown := x.ring.(interface{ Keys() [][]byte })
	switch {
	case shown && len(keys.Keys()) == 0:
		gossip = "GOSSIP OPEN TO ALL"
	case x.self.secrets.used == nil:
		gossip = "gossip by GossipKeys"
	}
	switch {
	case !x.net.Secured():
		streams = "STREAMS OPEN TO ALL"
	case x.self.identity == nil:
		streams = "streams by PeerTLS, of nodes that the arbiter lists"
	case x.ownStreams():
		streams = "streams by PeerKeys and by keys that the arbiter lists"
	}
	return gossip + ", " + streams
}

// logAddresses logs the addresses that this node listens at, and those that it tells the others.
func (x *cluster) logAddresses(a addresses) {
	x.c.opts.Logger.Info("holdfast: listening to other nodes", "gossip", x.ring.Bound(), "peer", x.net.Addr(),
		"gossip_advertised", x.ring.Gossip(), "peer_advertised", x.self.told, "protection", x.protection(), "because", a.reason)
	if (x.self.secrets.used == nil) != x.ownStreams() {
		x.c.opts.Logger.Warn("holdfast: only gossip or only streams have keys of your own: what the arbiter keeps protects the other side",
			"protection", x.protection())
	}
}

// ownStreams reports whether a stream takes more than the arbiter's word.
func (x *cluster) ownStreams() bool {
	return x.self.identity == nil || len(x.c.opts.Cluster.PeerKeys) > 0
}
