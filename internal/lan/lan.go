//go:build linux

// Package lan makes hosts of network namespaces on one bridge, and cuts between them.
package lan

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/internal/netns"
)

// A Network is hosts, each a network namespace, joined by a bridge. This process reaches all of
// them by the bridge's own address, which no cut affects.
type Network struct {
	*netns.Network
	base  string // of all addresses
	hosts []*Host

	mu    sync.Mutex // protects the fields below
	cuts  map[int]Cut
	next  int
	lines map[string]string // rules in force, by namespace
}

// A Host is a namespace, or one of several names and addresses in it: see [Network.Guest].
type Host struct {
	*netns.Host
	Name, Addr string
}

// Needs returns an error that names a missing tool or right of this machine, or nil.
func Needs() error { return netns.Needs("iptables-restore", "redis-server") }

// New makes the hosts, with the kind in their names as [netns.New] says. The caller must call
// Remove, also after an error.
func New(kind string, names ...string) (*Network, error) {
	n := &Network{cuts: make(map[int]Cut), lines: make(map[string]string)}
	var err error
	if n.Network, err = netns.New(kind); err != nil {
		return n, err
	}
	var bridge *netns.Switch
	if bridge, n.base, err = n.bridge(); err != nil {
		return n, err
	}
	for _, name := range names {
		h := n.named(name)
		if h.Host, err = n.Network.Host(name); err != nil {
			return n, err
		}
		if err := h.Plug(bridge, h.Addr+"/24"); err != nil {
			return n, err
		}
		n.hosts = append(n.hosts, h)
	}
	return n, nil
}

func (n *Network) named(name string) *Host {
	return &Host{Name: name, Addr: n.base + strconv.Itoa(len(n.hosts)+1)}
}

// Guest adds a name and an address on a host. Cuts and delays concern hosts: whoever is on one has
// its share of them, and nothing cuts guests of a host from each other.
func (n *Network) Guest(name string, on *Host) error {
	h := n.named(name)
	h.Host = on.Host
	n.hosts = append(n.hosts, h)
	return h.IP("addr", "add", h.Addr+"/24", "dev", "eth0")
}

// bases is locked while a process chooses addresses, until they are in use.
var bases sync.Mutex

// bridge makes the bridge that all hosts are on, with a network that nothing uses, and returns the
// prefix of its addresses.
func (n *Network) bridge() (_ *netns.Switch, base string, err error) {
	bases.Lock()
	defer bases.Unlock()
	used, err := netns.Output("-o", "-4", "addr")
	if err != nil {
		return nil, "", err
	}
	for i := range 250 {
		base = fmt.Sprintf("10.199.%d.", (os.Getpid()+i)%250+1)
		if !strings.Contains(used, " "+base) {
			break
		}
	}
	s, err := n.MachineSwitch(base + "254/24")
	return s, base, err
}

// Hosts returns all hosts.
func (n *Network) Hosts() []*Host { return n.hosts }

// Host returns the host with a name.
func (n *Network) Host(name string) *Host {
	for _, h := range n.hosts {
		if h.Name == name {
			return h
		}
	}
	panic("no host " + name)
}
