package main

import (
	"fmt"

	"github.com/holdfast-go/holdfast/internal/lan"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// hosts is a network namespace for Redis, and one for each node.
type hosts struct{ net *lan.Network }

const redisHost = "redis"

// newHosts makes hosts for so many nodes. The caller must call remove, also after an error.
func newHosts(nodes int) (*hosts, error) {
	if err := lan.Needs(); err != nil {
		return nil, err
	}
	net, err := lan.New("holds", append(nodeHosts(nodes), redisHost)...)
	return &hosts{net: net}, err
}

func nodeHosts(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("n", i+1))
	}
	return names
}

func (h *hosts) remove() error {
	if h == nil {
		return nil
	}
	return h.net.Remove()
}

// redis returns where the server is to listen.
func (h *hosts) redis() redistest.Place {
	x := h.net.Host(redisHost)
	return redistest.Place{Addr: x.Addr + ":6379", Command: x.In()}
}

// within calls f, which starts a process, on the host of a node.
func (h *hosts) within(node int, f func(ip string) error) error {
	x := h.net.Host(fmt.Sprint("n", node+1))
	return x.Within(func() error { return f(x.Addr) })
}

// cut cuts ways of some nodes. mend undoes it.
func (h *hosts) cut(nodes []int, l lines) (mend func() error, err error) {
	var c lan.Cut
	for _, i := range nodes {
		self := []string{fmt.Sprint("n", i+1)}
		var others []string
		for _, x := range h.net.Hosts() {
			if x.Name == redisHost && l.redis || x.Name != redisHost && l.peers {
				others = append(others, x.Name)
			}
		}
		if l.in {
			c = append(c, lan.OneWay(others, self)...)
		}
		if l.out {
			c = append(c, lan.OneWay(self, others)...)
		}
	}
	return h.net.Cut(c)
}

// apart cuts two nodes from each other, for good.
func (h *hosts) apart(one, other int) error {
	a, b := []string{fmt.Sprint("n", one+1)}, []string{fmt.Sprint("n", other+1)}
	_, err := h.net.Cut(append(lan.OneWay(a, b), lan.OneWay(b, a)...))
	return err
}
