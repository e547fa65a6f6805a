//go:build linux

package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/lan"
)

// faults is all faults that a storm can have.
var faults = slices.Concat(networkFaults, nodeFaults, serverFaults)

// cutFault is a fault that is a cut which shape returns, for a while.
func cutFault(name string, weight int, shape func(s *storm) (c lan.Cut, hosts []string, detail string)) fault {
	return fault{name: name, kind: ofNetwork, weight: weight, commit: func(ctx context.Context, s *storm) error {
		c, hosts, detail := shape(s)
		if s.intN(5) == 0 {
			c, detail = c.Refusing(), detail+" (refused)"
		}
		return s.cutFor(ctx, name, s.some(), c, hosts, detail)
	}}
}

// sparing is a cut between nodes only. All of them reach Redis.
func sparing(name string, weight int, shape func(s *storm) (c lan.Cut, hosts []string, detail string)) fault {
	f := cutFault(name, weight, shape)
	f.spares = true
	return f
}

func (s *storm) cutFor(ctx context.Context, name string, d span, c lan.Cut, hosts []string, detail string) error {
	defer s.begin(name, hosts, "%s", detail)()
	mend, err := s.r.net.Cut(c)
	if err != nil {
		return err
	}
	s.wait(ctx, d)
	return mend()
}

var networkFaults = []fault{
	cutFault("node cut off", 3, func(s *storm) (lan.Cut, []string, string) {
		x := s.shuffled(s.r.nodeNames())[:1]
		return lan.Both(x, s.r.allNames()), x, "from all"
	}),
	cutFault("node cut from Redis", 3, func(s *storm) (lan.Cut, []string, string) {
		x := s.shuffled(s.r.nodeNames())[:1]
		return lan.Both(x, s.r.serverNames()), x, ""
	}),
	sparing("two nodes cut from each other", 3, func(s *storm) (lan.Cut, []string, string) {
		x := s.shuffled(s.r.nodeNames())[:2]
		return lan.Both(x[:1], x[1:]), x, ""
	}),
	cutFault("minority of nodes cut off", 2, func(s *storm) (lan.Cut, []string, string) {
		x := s.shuffled(s.r.nodeNames())
		x, rest := x[:(len(x)-1)/2], x[(len(x)-1)/2:]
		return lan.Both(x, append(rest, s.r.serverNames()...)), x, "Redis is with the majority"
	}),
	cutFault("majority of nodes cut off", 2, func(s *storm) (lan.Cut, []string, string) {
		x := s.shuffled(s.r.nodeNames())
		x, rest := x[:len(x)/2+1], x[len(x)/2+1:]
		return lan.Both(x, append(rest, s.r.serverNames()...)), x, "Redis is with the minority"
	}),
	sparing("halves that both reach Redis", 2, func(s *storm) (lan.Cut, []string, string) {
		x := s.shuffled(s.r.nodeNames())
		return lan.Both(x[:len(x)/2], x[len(x)/2:]), x[:len(x)/2], ""
	}),
	sparing("majorities in a ring", 2, func(s *storm) (lan.Cut, []string, string) {
		x := s.shuffled(s.r.nodeNames())
		return lan.Ring(x), x, "each sees a majority, no two the same"
	}),
	sparing("bridge", 1, func(s *storm) (lan.Cut, []string, string) {
		x := s.shuffled(s.r.nodeNames())
		h := (len(x) - 1) / 2
		return lan.Both(x[:h], x[h+1:]), x, x[h] + " sees both halves"
	}),
	cutFault("one-way out", 2, func(s *storm) (lan.Cut, []string, string) {
		x := s.shuffled(s.r.nodeNames())[:1]
		return lan.OneWay(x, s.r.allNames()), x, "nobody hears it"
	}),
	cutFault("one-way in", 2, func(s *storm) (lan.Cut, []string, string) {
		x := s.shuffled(s.r.nodeNames())[:1]
		return lan.OneWay(s.r.allNames(), x), x, "it hears nobody"
	}),
	sparing("one-way between two nodes", 1, func(s *storm) (lan.Cut, []string, string) {
		x := s.shuffled(s.r.nodeNames())[:2]
		return lan.OneWay(x[:1], x[1:]), x, ""
	}),
	cutFault("one-way from Redis", 1, func(s *storm) (lan.Cut, []string, string) {
		x := s.shuffled(s.r.nodeNames())[:1]
		return lan.OneWay(s.r.serverNames(), x), x, "requests are executed, answers lost"
	}),
	cutFault("loss", 2, func(s *storm) (lan.Cut, []string, string) {
		x := s.shuffled(s.r.nodeNames())[:1+s.intN(2)]
		return lan.Both(x, s.r.allNames()).Lossy(0.2), x, "of every fifth packet, each way"
	}),
	{name: "flapping", kind: ofNetwork, weight: 1, commit: flap},
	{name: "delay", kind: ofNetwork, weight: 3, commit: delay},
}

// flap cuts a node off and mends that, again and again.
func flap(ctx context.Context, s *storm) error {
	x := s.shuffled(s.r.nodeNames())[:1]
	defer s.begin("flapping", x, "cut off and mended again and again")()
	c := lan.Both(x, s.r.allNames())
	for range 4 + s.intN(8) {
		mend, err := s.r.net.Cut(c)
		if err != nil {
			return err
		}
		s.wait(ctx, span{100 * time.Millisecond, 500 * time.Millisecond})
		if err := mend(); err != nil {
			return err
		}
		s.wait(ctx, span{50 * time.Millisecond, 500 * time.Millisecond})
	}
	return nil
}

var nodeFaults = []fault{
	{name: "node killed", kind: ofNodes, weight: 4, ends: true, commit: func(ctx context.Context, s *storm) error {
		return s.crash(ctx, "node killed", 1)
	}},
	{name: "several nodes killed", kind: ofNodes, weight: 1, ends: true, commit: func(ctx context.Context, s *storm) error {
		return s.crash(ctx, "several nodes killed", 2+s.intN(3))
	}},
	{name: "nodes killed every few seconds", kind: ofNodes, weight: 1, ends: true, commit: func(ctx context.Context, s *storm) error {
		return s.crashes(ctx, "nodes killed every few seconds", 5+s.intN(20))
	}},
	{name: "node stopped, shorter than T", kind: ofNodes, weight: 3, commit: func(ctx context.Context, s *storm) error {
		return s.freeze(ctx, "node stopped, shorter than T", 1, s.short())
	}},
	{name: "node stopped, longer than T", kind: ofNodes, weight: 4, commit: func(ctx context.Context, s *storm) error {
		return s.freeze(ctx, "node stopped, longer than T", 1, s.long())
	}},
	{name: "several nodes stopped", kind: ofNodes, weight: 1, commit: func(ctx context.Context, s *storm) error {
		return s.freeze(ctx, "several nodes stopped", 2+s.intN(4), s.some())
	}},
	{name: "node leaves and comes back", kind: ofNodes, weight: 2, ends: true, commit: func(ctx context.Context, s *storm) error {
		return s.restart(ctx, "node leaves and comes back", 1)
	}},
	{name: "rolling restart", kind: ofNodes, weight: 1, ends: true, commit: func(ctx context.Context, s *storm) error {
		return s.restart(ctx, "rolling restart", len(s.r.seats))
	}},
}

func (s *storm) crash(ctx context.Context, name string, n int) error {
	seats, release := s.take(n)
	defer release()
	defer s.begin(name, seatNames(seats), "")()
	for _, x := range seats {
		x.kill()
	}
	s.wait(ctx, span{0, s.r.cfg.Times.TTL * 3 / 2})
	return each(seats, func(x *seat) error { return x.start() })
}

// crashes kills a node every three seconds or so, and soon starts it again. Where others take over
// within that time, the next kill may hit one of them while it does.
func (s *storm) crashes(ctx context.Context, name string, n int) error {
	for range n {
		seats, release := s.take(1)
		end := s.begin(name, seatNames(seats), "")
		for _, x := range seats {
			x.kill()
		}
		s.wait(ctx, span{0, 2 * time.Second})
		err := each(seats, func(x *seat) error { return x.start() })
		end()
		release()
		if err != nil || ctx.Err() != nil {
			return err
		}
		s.wait(ctx, span{time.Second, 3 * time.Second})
	}
	return nil
}

func (s *storm) freeze(ctx context.Context, name string, n int, d span) error {
	seats, release := s.take(n)
	defer release()
	defer s.begin(name, seatNames(seats), "")()
	for _, x := range seats {
		x.signal(syscall.SIGSTOP)
	}
	s.wait(ctx, d)
	for _, x := range seats {
		x.signal(syscall.SIGCONT)
		s.wait(ctx, span{0, 300 * time.Millisecond})
	}
	return nil
}

func (s *storm) restart(ctx context.Context, name string, n int) error {
	seats, release := s.take(n)
	defer release()
	for _, x := range seats {
		end := s.begin(name, seatNames([]*seat{x}), "")
		err := x.leave()
		s.wait(ctx, span{0, time.Second})
		err = errors.Join(err, x.start())
		end()
		if err != nil || ctx.Err() != nil {
			return err
		}
		s.wait(ctx, span{500 * time.Millisecond, 2 * time.Second})
	}
	return nil
}

// each calls f for all at the same time.
func each[T any](all []T, f func(T) error) error {
	var mu sync.Mutex
	var errs []error
	var work sync.WaitGroup
	for _, x := range all {
		work.Go(func() {
			if err := f(x); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	work.Wait()
	return errors.Join(errs...)
}
