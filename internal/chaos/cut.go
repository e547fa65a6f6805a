//go:build linux

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/netns"
)

// A cut is packets that are lost between hosts, each direction by itself.
type cut []way

// A way is from one host to another.
type way struct {
	from, to string
	loss     float64 // share of the packets that are lost; 0: all
	refuse   bool    // connections are reset rather than lost: what a dead process's machine answers
}

// both are the ways between each of some hosts and each of others, in both directions.
func both(some, others []string) cut { return append(oneWay(some, others), oneWay(others, some)...) }

// oneWay are the ways from each of some hosts to each of others.
func oneWay(some, others []string) cut {
	var c cut
	for _, a := range some {
		for _, b := range others {
			if a != b {
				c = append(c, way{from: a, to: b})
			}
		}
	}
	return c
}

// ring are the ways that are cut if each of an odd number of hosts sees a majority, and no two see the same.
func ring(names []string) cut {
	var c cut
	n := len(names)
	for i, a := range names {
		for j, b := range names {
			if d, near := (j-i+n)%n, (n/2+1)/2; d > near && n-d > near {
				c = append(c, way{from: a, to: b})
			}
		}
	}
	return c
}

// lossy makes the ways lose a share of the packets instead of all.
func (c cut) lossy(share float64) cut {
	for i := range c {
		c[i].loss = share
	}
	return c
}

func (c cut) refusing() cut {
	for i := range c {
		c[i].refuse = true
	}
	return c
}

// cut puts a cut in force, beside those that are, and returns what mends it.
func (n *network) cut(c cut) (mend func() error, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next++
	id := n.next
	n.cuts[id] = c
	return func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.cuts, id)
		return n.apply()
	}, n.apply()
}

// apply brings the rules of all hosts up to date. Each host drops what comes in from others.
func (n *network) apply() error {
	for _, h := range n.hosts {
		var rules []string
		for _, id := range slices.Sorted(maps.Keys(n.cuts)) {
			for _, w := range n.cuts[id] {
				if w.to != h.name {
					continue
				}
				rule := "-A INPUT -s " + n.host(w.from).ip
				if w.loss > 0 {
					rule += fmt.Sprintf(" -m statistic --mode random --probability %.2f", w.loss)
				}
				if w.refuse {
					rules = append(rules, rule+" -p tcp -j REJECT --reject-with tcp-reset")
				}
				rules = append(rules, rule+" -j DROP")
			}
		}
		text := "*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n" + strings.Join(rules, "\n") + "\nCOMMIT\n"
		if text == n.lines[h.name] || len(rules) == 0 && n.lines[h.name] == "" {
			continue
		}
		if err := netns.Run(text, "ip", append(h.Command(), "iptables-restore")...); err != nil {
			return err
		}
		n.lines[h.name] = text
	}
	return nil
}
