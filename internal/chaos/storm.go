//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// A band is a fault that was committed, as the picture shows it.
type band struct {
	Fault  string
	Hosts  []string // that it concerned
	Detail string
	Begin  moment
	End    moment // 0: not yet
}

// A storm is the faults of one round, each in a goroutine of its own, that begin within two seconds
// and may overlap.
type storm struct {
	r *running

	mu    sync.Mutex // protects the fields below
	rand  *rand.Rand
	taken map[string]bool // hosts with a process that something is done to
	bands []*band
	errs  []error
}

// A fault is something that is done to nodes, servers or the network, and mended.
type fault struct {
	name       string
	kind       kind
	topologies []string // empty: all
	weight     int
	asked      bool                                      // only with Config.Defaults, or where Only names it
	observed   bool                                      // only with Config.Observed, or where Only names it
	ends       bool                                      // nodes
	spares     bool                                      // all nodes reach Redis, and none is stopped: no lock may be lost
	commit     func(ctx context.Context, s *storm) error // returns when it is mended
}

type kind string

// Faults of the same kind do not come at once, but those of the network.
const (
	ofNetwork kind = "network"
	ofNodes   kind = "nodes"
	ofServers kind = "servers"
)

// plan chooses the faults of a round.
func plan(r *rand.Rand, cfg config) []fault {
	var usable []fault
	for _, f := range faults {
		if len(f.topologies) > 0 && !slices.Contains(f.topologies, cfg.Topology) || cfg.Soak && f.ends ||
			(f.asked && !cfg.Defaults || f.observed && !cfg.Observed) && len(cfg.Only) == 0 || len(cfg.Only) > 0 && !slices.Contains(cfg.Only, f.name) {
			continue
		}
		usable = append(usable, f)
	}
	n := 1 + r.IntN(3)*r.IntN(2) // half of them alone
	var chosen []fault
	for range 4 * n {
		f := pickFault(r, usable)
		again := slices.ContainsFunc(chosen, func(g fault) bool { return g.kind == f.kind && f.kind != ofNetwork || g.name == f.name })
		if !again {
			chosen = append(chosen, f)
		}
		if len(chosen) == n {
			break
		}
	}
	return chosen
}

func pickFault(r *rand.Rand, all []fault) fault {
	sum := 0
	for _, f := range all {
		sum += f.weight
	}
	at := r.IntN(sum)
	for _, f := range all {
		if at -= f.weight; at < 0 {
			return f
		}
	}
	panic("unreachable")
}

// rage commits the faults and returns when all are mended.
func (s *storm) rage(ctx context.Context, chosen []fault) error {
	var work sync.WaitGroup
	for i, f := range chosen {
		work.Go(func() {
			if i > 0 {
				s.wait(ctx, span{0, 2 * time.Second})
			}
			if err := f.commit(ctx, s); err != nil && ctx.Err() == nil {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.errs = append(s.errs, fmt.Errorf("%s: %w", f.name, err))
			}
		})
	}
	work.Wait()
	return errors.Join(s.errs...)
}

// begin notes that a fault begins. The function that it returns notes the end.
func (s *storm) begin(name string, hosts []string, format string, args ...any) (end func()) {
	b := &band{Fault: name, Hosts: hosts, Detail: fmt.Sprintf(format, args...), Begin: now()}
	s.mu.Lock()
	s.bands = append(s.bands, b)
	s.mu.Unlock()
	s.r.tell("  %s %v %s", name, hosts, b.Detail)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		b.End = now()
	}
}

func (s *storm) pick(d span) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return d.From + time.Duration(s.rand.Int64N(int64(d.To-d.From)+1))
}

func (s *storm) intN(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.IntN(n)
}

func (s *storm) wait(ctx context.Context, d span) { sleep(ctx, s.pick(d)) }

// shuffled returns names in some order.
func (s *storm) shuffled(names []string) []string {
	all := slices.Clone(names)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// take chooses up to n nodes without a fault.
func (s *storm) take(n int) (chosen []*seat, release func()) {
	names := s.shuffled(s.r.nodeNames())
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if len(chosen) < n && !s.taken[name] {
			s.taken[name] = true
			chosen = append(chosen, s.r.seat(name))
		}
	}
	return chosen, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, x := range chosen {
			delete(s.taken, x.host.Name)
		}
	}
}

func seatNames(seats []*seat) []string {
	var names []string
	for _, x := range seats {
		names = append(names, x.host.Name)
	}
	return names
}

// short and long are times compared to T: a lock survives short, as a rule, and none survives long.
func (s *storm) short() span { t := s.r.cfg.Times.TTL; return span{t / 5, t * 2 / 3} }
func (s *storm) long() span  { t := s.r.cfg.Times.TTL; return span{t * 5 / 4, t * 5 / 2} }

// some is either.
func (s *storm) some() span {
	if s.intN(2) == 0 {
		return s.short()
	}
	return s.long()
}
