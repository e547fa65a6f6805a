//go:build linux

package lan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/internal/netns"
)

// A Cut is packets that are lost between hosts, each direction by itself.
type Cut []Way

// A Way is from one host to another.
type Way struct {
	From, To string
	Loss     float64 // share of the packets that are lost; 0: all
	Refuse   bool    // connections are reset rather than lost: a dead process's machine does so
}

// Both are the ways between each of some hosts and each of others, in both directions.
func Both(some, others []string) Cut { return append(OneWay(some, others), OneWay(others, some)...) }

// OneWay are the ways from each of some hosts to each of others.
func OneWay(some, others []string) Cut {
	var c Cut
	for _, a := range some {
		for _, b := range others {
			if a != b {
				c = append(c, Way{From: a, To: b})
			}
		}
	}
	return c
}

// Ring are the ways that are cut if each of an odd number of hosts sees a majority, and no two see
// the same.
func Ring(names []string) Cut {
	var c Cut
	n := len(names)
	for i, a := range names {
		for j, b := range names {
			if d, near := (j-i+n)%n, (n/2+1)/2; d > near && n-d > near {
				c = append(c, Way{From: a, To: b})
			}
		}
	}
	return c
}

// Lossy makes the ways lose a share of the packets instead of all.
func (c Cut) Lossy(share float64) Cut {
	for i := range c {
		c[i].Loss = share
	}
	return c
}

// Refusing makes connections end by a reset, in the place of silence.
func (c Cut) Refusing() Cut {
	for i := range c {
		c[i].Refuse = true
	}
	return c
}

// Cut puts a cut in force, beside those that are, and returns the function that mends it.
func (n *Network) Cut(c Cut) (mend func() error, err error) {
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

// apply brings the rules of all hosts up to date, those of all at the same time: half a cut is
// another one. Each host drops packets that come in from others.
func (n *Network) apply() error {
	errs := make([]error, len(n.hosts))
	texts := make([]string, len(n.hosts)) // of those that change
	var work sync.WaitGroup
	for i, h := range n.hosts {
		if slices.IndexFunc(n.hosts, func(x *Host) bool { return x.Host == h.Host }) < i {
			continue // a guest
		}
		rules := n.rules(h)
		text := "*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\n" + strings.Join(rules, "\n") + "\nCOMMIT\n"
		if text == n.lines[h.Namespace()] || len(rules) == 0 && n.lines[h.Namespace()] == "" {
			continue
		}
		texts[i] = text
		work.Go(func() { errs[i] = netns.Run(text, "ip", append(h.Command(), "iptables-restore", "-w", "5")...) })
	}
	work.Wait()
	for i, h := range n.hosts {
		if texts[i] != "" && errs[i] == nil {
			n.lines[h.Namespace()] = texts[i]
		}
	}
	return errors.Join(errs...)
}

// rules returns those of a host, for all that are on it. A packet's source may be any address of
// the sender's host.
func (n *Network) rules(h *Host) (rules []string) {
	add := func(rule string) {
		if !slices.Contains(rules, rule) {
			rules = append(rules, rule)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(n.cuts)) {
		for _, w := range n.cuts[id] {
			if from := n.Host(w.From).Host; n.Host(w.To).Host == h.Host && from != h.Host {
				for _, addr := range n.addrs(from) {
					rule := "-A INPUT -s " + addr
					if w.Loss > 0 {
						rule += fmt.Sprintf(" -m statistic --mode random --probability %.2f", w.Loss)
					}
					if w.Refuse {
						add(rule + " -p tcp -j REJECT --reject-with tcp-reset")
					}
					add(rule + " -j DROP")
				}
			}
		}
	}
	return rules
}

// addrs returns all addresses of a host.
func (n *Network) addrs(of *netns.Host) (all []string) {
	for _, h := range n.hosts {
		if h.Host == of {
			all = append(all, h.Addr)
		}
	}
	return all
}
