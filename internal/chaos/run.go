//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/lan"
	"github.com/holdfast-go/holdfast/internal/reexec"
	"github.com/holdfast-go/holdfast/internal/stall"
)

// config is the configuration of a run.
type config struct {
	Topology string
	Duration time.Duration
	Seed     uint64
	Nodes    int
	Hosts    int // that the nodes share; 0: each has one of its own
	Keys     int // that all clients lock and unlock
	Slow     int // that all clients hold for long
	Rest     span
	Share    float64 // see job
	Times    times
	Mutant   string
	Replicas int
	Observed bool     // redisarbiter.Options.ObserverClock
	All      bool     // redisarbiter.Options.AllReplicas, with sentinel
	Defaults bool     // Redis's default replication: two holders are to be expected
	Only     []string // faults; empty: all
	Soak     bool     // only faults that end no node: memory, goroutines and Redis have to stay as they are
	Pause    span     // between two rounds
	Others   []string // further hosts
	Seeds    []string // of all nodes: hosts' names
	Kept     bool     // the key lasting is held by the first node until it loses it, then by the next one
	Dir      string   // for events, logs and the servers' data; empty: a temporary one, which is removed if all was well
	Quiet    bool
}

// allReplicas is Options.AllReplicas: how many replicas there are.
func (cfg config) allReplicas() int {
	if cfg.All {
		return 2 // of three servers
	}
	return 0
}

// running is a run that is under way.
type running struct {
	cfg      config
	dir      string
	begun    moment
	net      *lan.Network
	servers  *servers
	resource *reexec.Process
	asks     *access
	seats    []*seat
	bands    []*band
	rounds   []*round
	owners   []ownership
	counts   []census      // in the calm after each round
	offset   time.Duration // of the clock of a single server
	watch    stall.Watch
}

// round is a storm and the recovery from it.
type round struct {
	Faults    []string
	Spares    bool // none of them may make any client lose a lock
	Begin     moment
	Healed    moment // every fault is mended, and the servers have settled
	Recovered moment // every node has locked every key again; 0: it has not
	End       moment // when the next storm begins
}

// commit makes a run and judges it. An error is of the run itself, not a violation.
func commit(ctx context.Context, cfg config) (_ *report, err error) {
	if err := lan.Needs(); err != nil {
		return nil, err
	}
	r := &running{cfg: cfg, dir: cfg.Dir}
	if r.dir == "" {
		if r.dir, err = os.MkdirTemp("", "holdfast-chaos-"); err != nil {
			return nil, err
		}
	} else if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, err
	}
	go r.watch.Run(func(d time.Duration) {
		fmt.Printf("          this process was stalled for %v\n", d.Round(time.Millisecond))
	})
	defer func() { err = errors.Join(err, r.tearDown()) }()
	if err := r.setUp(ctx); err != nil {
		return nil, err
	}
	sampling, stop := context.WithCancel(ctx)
	sampled := make(chan struct{})
	go func() { defer close(sampled); r.sample(sampling) }()
	bad := r.rage(ctx)
	stop()
	<-sampled
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	rep, err := r.finish(ctx)
	if err != nil {
		return nil, err
	}
	rep.Violations = append(rep.Violations, bad...)
	rep.excuse(cfg)
	if cfg.Dir == "" && len(rep.Violations) == 0 {
		err = os.RemoveAll(r.dir)
	} else {
		rep.Kept = r.dir
	}
	return rep, err
}

func (r *running) tell(format string, args ...any) {
	if r.cfg.Quiet {
		return
	}
	at := "0s"
	if r.begun != 0 {
		at = now().since(r.begun)
	}
	fmt.Printf("%9s %s\n", at, fmt.Sprintf(format, args...))
}

func (r *running) nodeNames() []string { return seatNames(r.seats) }

// serverNames are the hosts of all servers, sentinels among them.
func (r *running) serverNames() []string { return serverNames[r.cfg.Topology] }

func (r *running) allNames() []string { return append(r.nodeNames(), r.serverNames()...) }

func (r *running) seat(name string) *seat {
	for _, s := range r.seats {
		if s.host.Name == name {
			return s
		}
	}
	panic("no node " + name)
}

func keyNames(prefix string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprint(prefix, i+1))
	}
	return all
}

// setUp starts everything, and waits until every node has locked every key.
func (r *running) setUp(ctx context.Context) error {
	nodes := keyNames("n", r.cfg.Nodes)
	hosts := nodes[:cmp.Or(r.cfg.Hosts, len(nodes))]
	var err error
	if r.net, err = lan.New("chaos", slices.Concat(hosts, serverNames[r.cfg.Topology], r.cfg.Others)...); err != nil {
		return err
	}
	for i, name := range nodes[len(hosts):] {
		if err := r.net.Guest(name, r.net.Host(hosts[i%len(hosts)])); err != nil {
			return err
		}
	}
	setting, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if r.servers, err = startServers(setting, r.net, r.cfg, r.dir); err != nil {
		return err
	}
	if err := r.openResource(setting); err != nil {
		return err
	}
	for _, name := range nodes {
		if err := r.addSeat(name); err != nil {
			return err
		}
		if s := r.seats[0]; r.cfg.Kept && len(r.seats) == 1 {
			err := await(setting, "the first node", func() error {
				a, err := r.asks.ask(request{Op: "sum"})
				if err == nil && a.Tally.Last["lasting"][name] == 0 {
					err = errors.Join(errors.New("it has not got its key"), s.failed())
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	r.begun = now()
	if _, err := r.recover(ctx, r.begun, true); err != nil {
		return fmt.Errorf("at the start: %w", err)
	}
	r.begun = now()
	r.tell("%d nodes on %d hosts, %s, T = %v, seed %d: everybody works", r.cfg.Nodes, len(hosts), r.cfg.Topology, r.cfg.Times.TTL, r.cfg.Seed)
	return nil
}

// openResource starts the resource that the locks protect.
func (r *running) openResource(ctx context.Context) error {
	socket := filepath.Join(r.dir, "resource")
	var err error
	if r.resource, err = reexec.Again(filepath.Join(r.dir, "resource.log"), nil, resourceVariable, socket); err != nil {
		return err
	}
	return await(ctx, "the resource", func() (err error) { r.asks, err = openResource(socket); return err })
}

// addSeat starts a node on a host.
func (r *running) addSeat(name string) error {
	h := r.net.Host(name)
	s := &seat{host: h, dir: r.dir, job: job{
		Node: name, IP: h.Addr, Events: filepath.Join(r.dir, name+".events"), Resource: filepath.Join(r.dir, "resource"),
		Mutant: r.cfg.Mutant, Cold: true, Topology: r.cfg.Topology, Servers: r.servers.addrs, Replicas: r.cfg.Replicas, Observed: r.cfg.Observed, All: r.cfg.allReplicas(),
		Times: r.cfg.Times,
		Keys:  keyNames("k", r.cfg.Keys), Slow: keyNames("slow", r.cfg.Slow), Rest: r.cfg.Rest, Share: r.cfg.Share,
	}}
	if r.cfg.Kept {
		s.job.Keep = []string{"lasting"}
	}
	for _, seed := range r.cfg.Seeds {
		s.job.Seeds = append(s.job.Seeds, r.net.Host(seed).Addr+":7946")
	}
	r.seats = append(r.seats, s)
	err := s.start()
	s.job.Cold = false // from now on
	return err
}

// rage makes storms and recoveries until the time is over. It returns violations.
func (r *running) rage(ctx context.Context) (bad []string) {
	end := r.begun.add(r.cfg.Duration)
	random := rand.New(rand.NewPCG(r.cfg.Seed, 0))
	for ctx.Err() == nil && now() < end {
		s := &storm{r: r, rand: rand.New(rand.NewPCG(r.cfg.Seed, random.Uint64())), taken: make(map[string]bool)}
		chosen := plan(random, r.cfg)
		x := &round{Begin: now(), Spares: true}
		for _, f := range chosen {
			x.Faults = append(x.Faults, f.name)
			x.Spares = x.Spares && f.spares
		}
		r.rounds = append(r.rounds, x)
		r.tell("storm: %s", strings.Join(x.Faults, " + "))
		if err := s.rage(ctx, chosen); err != nil {
			bad = append(bad, fmt.Sprintf("round %d: %v", len(r.rounds), err))
		}
		r.bands = append(r.bands, s.bands...)
		mended := now()
		settling, cancel := context.WithTimeout(ctx, time.Minute)
		err := r.servers.settled(settling)
		cancel()
		if err != nil && ctx.Err() == nil {
			return append(bad, fmt.Sprintf("round %d: %v", len(r.rounds), err))
		}
		x.Healed = now()
		at, err := r.recover(ctx, x.Healed, false)
		x.End = now()
		if err != nil {
			if ctx.Err() == nil {
				bad = append(bad, fmt.Sprintf("round %d at %s (I8): %v", len(r.rounds), now().since(r.begun), err))
			}
			return bad
		}
		x.Recovered = at
		r.tell("  mended; servers after %v, everybody after %v", x.Healed.sub(mended).Round(time.Millisecond),
			at.sub(x.Healed).Round(time.Millisecond))
		s.wait(ctx, r.cfg.Pause)
		x.End = now()
		count, err := r.servers.count(ctx)
		if err != nil {
			return append(bad, fmt.Sprintf("round %d: %v", len(r.rounds), err))
		}
		r.counts = append(r.counts, count)
	}
	if ctx.Err() != nil {
		return bad
	}
	if _, err := r.recover(ctx, now(), true); err != nil {
		bad = append(bad, "in the end (I8): "+err.Error())
	}
	return bad
}

// recover waits until every node has locked each key after a moment, and returns when that was. Of
// the slow keys, which are held for longer than a session lasts, one node each will do unless all
// is said.
func (r *running) recover(ctx context.Context, since moment, all bool) (moment, error) {
	t := r.cfg.Times
	limit := t.Grace + 2*t.TTL + 10*time.Second
	if all {
		limit += time.Duration(r.cfg.Nodes) * 2 * t.TTL
	}
	stalled := r.watch.Sum()
	for {
		missing, err := r.missing(since, all)
		if err != nil {
			return 0, err
		}
		if len(missing) == 0 {
			return now(), nil
		}
		for _, s := range r.seats {
			if err := s.failed(); err != nil {
				return 0, err
			}
		}
		if now().sub(since) > limit+r.watch.Sum()-stalled {
			return 0, fmt.Errorf("after %v: %s", limit, strings.Join(missing, ", "))
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return 0, ctx.Err()
		}
	}
}

// missing says which nodes have not locked which keys since, to write; of the slow ones a reader
// will do.
func (r *running) missing(since moment, all bool) (missing []string, err error) {
	a, err := r.asks.ask(request{Op: "sum"})
	if err != nil {
		return nil, err
	}
	for _, key := range r.seats[0].job.Keys {
		for _, s := range r.seats {
			if a.Tally.Last[key][s.host.Name] <= int64(since) {
				missing = append(missing, s.host.Name+" has not got "+key)
			}
		}
	}
	for _, key := range r.seats[0].job.Slow {
		n := 0
		for _, s := range r.seats {
			if max(a.Tally.Last[key][s.host.Name], a.Tally.Read[key][s.host.Name]) > int64(since) {
				n++
			}
		}
		if n == 0 || all && n < len(r.seats) {
			missing = append(missing, fmt.Sprintf("%d of %d have got %s", n, len(r.seats), key))
		}
	}
	return missing, nil
}

// finish lets all nodes leave, and judges.
func (r *running) finish(ctx context.Context) (*report, error) {
	a, err := r.asks.ask(request{Op: "sum"})
	if err != nil {
		return nil, err
	}
	end := now()
	var bad []string
	before, err := r.servers.count(ctx)
	if err != nil {
		return nil, err
	}
	if err := each(r.seats, func(s *seat) error { return s.leave() }); err != nil {
		bad = append(bad, "a node did not end in order: "+err.Error())
	}
	left, err := r.servers.count(ctx)
	if err != nil {
		return nil, err
	}
	var all []event
	for _, s := range r.seats {
		events, err := readEvents(s.job.Events)
		if err != nil {
			return nil, err
		}
		all = append(all, events...)
	}
	rep := judge(r, all, end)
	rep.Resource, rep.Before, rep.Left = a.Tally, before, left
	if rep.Buried, err = r.buried(); err != nil {
		return nil, err
	}
	rep.Violations = append(rep.Violations, bad...)
	for _, text := range a.Tally.Bad {
		rep.Violations = append(rep.Violations, "the resource: "+text)
	}
	// Rows may be left, as all leave at once and at work: see the limits in docs/chaos.md.
	if left.Sessions > 0 {
		rep.Violations = append(rep.Violations, fmt.Sprintf("left at Redis when all have left: %+v", left))
	}
	return rep, nil
}

// buried counts the sessions that others ended, by what they logged: of silent processes, and of
// those that they saw end. Several nodes may log the same end.
func (r *running) buried() (n [2]int, err error) {
	why := map[string]int{" was silent for too long": 0, "'s process has ended": 1}
	counted := make(map[string]bool)
	for _, s := range r.seats {
		text, err := os.ReadFile(filepath.Join(r.dir, s.host.Name+".log"))
		if err != nil {
			return n, err
		}
		for _, end := range burial.FindAllSubmatch(text, -1) {
			if session := string(end[2]); !counted[session] {
				counted[session] = true
				n[why[string(end[1])]]++
			}
		}
	}
	return n, nil
}

// burial is the record of the end of a session.
var burial = regexp.MustCompile(`holdfast: a node( was silent for too long|'s process has ended), and its session was ended"[^\n]* session=(\w+)`)

func (r *running) tearDown() error {
	for _, s := range r.seats {
		s.kill()
	}
	if r.asks != nil {
		r.asks.c.Close()
	}
	if r.resource != nil {
		r.resource.Kill()
	}
	if r.servers != nil {
		r.servers.stop()
	}
	if r.net != nil {
		return r.net.Remove()
	}
	return nil
}
