//go:build linux

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/internal/netns"
)

// A network is hosts, each a network namespace, joined by a bridge. This process reaches all of them by the bridge's own
// address, which no cut affects.
type network struct {
	*netns.Network
	hosts []*host

	mu    sync.Mutex // protects what follows
	cuts  map[int]cut
	next  int
	lines map[string]string // rules in force, by host
}

// A host is a namespace.
type host struct {
	*netns.Host
	name string
	ip   string
}

// needs says what is missing on this machine, or nil.
func needs() error { return netns.Needs("iptables-restore", "redis-server") }

// newNetwork makes the hosts. Remove must be called, also after an error.
func newNetwork(names ...string) (*network, error) {
	n := &network{cuts: make(map[int]cut), lines: make(map[string]string)}
	var err error
	if n.Network, err = netns.New("chaos"); err != nil {
		return n, err
	}
	used, err := netns.Output("-o", "-4", "addr")
	if err != nil {
		return n, err
	}
	var base string // of the addresses
	for i := range 250 {
		base = fmt.Sprintf("10.199.%d.", (os.Getpid()+i)%250+1)
		if !strings.Contains(used, " "+base) {
			break
		}
	}
	bridge, err := n.MachineSwitch(base + "254/24")
	if err != nil {
		return n, err
	}
	for i, name := range names {
		h := &host{name: name, ip: base + strconv.Itoa(i+1)}
		if h.Host, err = n.Host(name); err != nil {
			return n, err
		}
		if err := h.Plug(bridge, h.ip+"/24"); err != nil {
			return n, err
		}
		n.hosts = append(n.hosts, h)
	}
	return n, nil
}

func (n *network) host(name string) *host {
	for _, h := range n.hosts {
		if h.name == name {
			return h
		}
	}
	panic("no host " + name)
}
