//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// killing is a measurement of the cost of nodes' deaths to the others: under load, nodes are
// killed, stopped or cut off, again and again.
type killing struct {
	setup
	Kills   int
	Die     int           // so many nodes at once
	Apart   time.Duration // so long after each other, if they get a signal
	By      harm
	Lasts   time.Duration // a stop or a cut
	Again   bool          // the dead node's process starts again, at its address
	After   time.Duration // so long after it died
	Workers int           // of each node
}

// harm is something that is done to nodes.
type harm struct {
	name, what string
	signal     syscall.Signal
	cut        lines
	lives      bool // the node goes on, and loses none of its own locks
}

// lines are the ways that are cut between some nodes and the rest.
type lines struct {
	in, out, redis, peers bool
}

var harms = []harm{
	{name: "kill", what: "SIGKILL", signal: syscall.SIGKILL},
	{name: "stop", what: "SIGSTOP", signal: syscall.SIGSTOP},
	{name: "cut", what: "cut from all", cut: lines{in: true, out: true, redis: true, peers: true}},
	{name: "redis", what: "cut from Redis", cut: lines{in: true, out: true, redis: true}},
	{name: "peers", what: "cut from the other nodes", cut: lines{in: true, out: true, peers: true}, lives: true},
	{name: "out", what: "heard by none", cut: lines{out: true, redis: true, peers: true}},
	{name: "in", what: "hears none", cut: lines{in: true, redis: true, peers: true}},
}

func harmNames() string {
	var names []string
	for _, h := range harms {
		names = append(names, h.name)
	}
	return strings.Join(names, ", ")
}

// goalLate is a margin on top of Takeover. Within their sum the others have to lock the keys of a
// dead node again. The workers of another node must not go without any new lock for longer. A node
// that lives keeps its partitions until its death would be known. Then it gives them back, and its
// keys are asked for again, which may take goalAlive more.
const (
	goalLate  = 500 * time.Millisecond
	goalAlive = time.Second
)

// outcome is the result of a harm to one number of nodes.
type outcome struct {
	locked []time.Duration // for each key of the nodes concerned, until another node has locked it
	worst  []time.Duration // per time, the longest of them
	wait   time.Duration   // the longest wait of a worker of the others
	pause  time.Duration   // the longest time in which no worker of a node got a lock
	lost   uint64          // locks of others
	failed uint64          // locks that workers of others asked for
	held   int
	own    uint64 // locks of nodes that lived on
	had    int

	granted map[string]uint64 // to workers of the others, by path
	calls   map[string]uint64 // of the arbiter by the others, until the keys were locked
	during  float64           // that time, in seconds of a node
}

// run measures clusters of each of the sizes, N or N:M where M nodes are concerned at once, and
// each harm. It reports whether all goals were reached.
func (s killing) run(ctx context.Context, out io.Writer, sizes, by string) (good bool, err error) {
	fmt.Fprintf(out, "| nodes | what happens to them | key locked again: p50 | p99 | longest | longest of a time: p50 | p99 | longest wait of a worker "+
		"| longest pause of a node | failed | lost by others | lost by themselves | locks at Redis | calls meanwhile, of a node per second |\n")
	fmt.Fprintf(out, "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	good = true
	for name := range strings.SplitSeq(by, ",") {
		i := slices.IndexFunc(harms, func(h harm) bool { return h.name == name })
		if i < 0 {
			return false, fmt.Errorf("-by has %q, must have names of %s", name, harmNames())
		}
		s.By = harms[i]
		if s.Apart > 0 && s.By.cut != (lines{}) {
			return false, fmt.Errorf("-by has %q: -apart is for kill and stop", name)
		}
		for size := range strings.SplitSeq(sizes, ",") {
			n, die, two := strings.Cut(size, ":")
			s.Die = 1
			if s.Nodes, err = strconv.Atoi(n); err == nil && two {
				s.Die, err = strconv.Atoi(die)
			}
			if err != nil || s.Die < 1 || s.Nodes <= s.Die {
				return false, fmt.Errorf("-kill-nodes has %q, must have numbers such as 5, or 5:2 for two of five at once", size)
			}
			o, err := s.cluster(ctx, out)
			if err != nil {
				return false, fmt.Errorf("%s, %s: %w", s.By.what, size, err)
			}
			good = s.tell(out, o) && good
		}
	}
	return good, nil
}

// tell writes a row of the table, and reports whether all goals were reached.
func (s killing) tell(out io.Writer, o outcome) bool {
	slices.Sort(o.locked)
	slices.Sort(o.worst)
	own := "all"
	if s.By.signal != syscall.SIGKILL {
		own = fmt.Sprintf("%d of %d", o.own, o.had)
	}
	of := fmt.Sprint(len(o.worst), " times ", s.By.what)
	switch {
	case s.Die > 1 && s.Apart > 0:
		of = fmt.Sprint(of, ", ", s.Die, " of them ", s.Apart, " apart")
	case s.Die > 1:
		of = fmt.Sprint(of, ", ", s.Die, " at once")
	}
	sec := func(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
	fmt.Fprintf(out, "| %d | %s | %s | %s | %s | %s | %s | %s | %s | %d | %d of %d | %s | %.2f %% | %s |\n", s.Nodes, of, sec(at(o.locked, 50)), sec(at(o.locked, 99)),
		sec(at(o.locked, 100)), sec(at(o.worst, 50)), sec(at(o.worst, 99)), sec(o.wait), sec(o.pause), o.failed, o.lost, o.held, own, 100*share(o.granted), o.rates())
	limit := s.promise() + goalLate
	if s.By.lives {
		limit += goalAlive
		o.lost += o.own
	}
	return s.promise() == 0 || at(o.worst, 99) <= limit && o.pause <= limit+s.Apart*time.Duration(s.Die-1) && o.failed+o.lost == 0
}

// rates lists how many calls of each kind a node made per second.
func (o outcome) rates() string {
	var list []string
	for _, op := range slices.Sorted(maps.Keys(o.calls)) {
		if rate := float64(o.calls[op]) / o.during; rate >= 0.05 {
			list = append(list, fmt.Sprintf("%s %.1f", op, rate))
		}
	}
	return strings.Join(list, ", ")
}

func (o *outcome) called(before, after map[string]uint64, during float64) {
	for op, n := range after {
		o.calls[op] += n - before[op]
	}
	o.during += during
}

// at returns a percentile of sorted durations.
func at(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max((len(sorted)*percent+99)/100-1, 0)] // the smallest that so many percent do not exceed
}

func (s killing) cluster(ctx context.Context, out io.Writer) (o outcome, err error) {
	o.granted, o.calls = make(map[string]uint64), make(map[string]uint64)
	if s.By.cut != (lines{}) {
		if s.hosts, err = newHosts(s.Nodes); err != nil {
			return o, errors.Join(err, s.hosts.remove())
		}
		defer func() { err = errors.Join(err, s.hosts.remove()) }()
	}
	t, end, err := newTrial(ctx, out, s.setup)
	defer end()
	if err != nil {
		return o, err
	}
	for i := range s.Nodes {
		if err := t.add(i, s); err != nil {
			return o, err
		}
	}
	for i := range s.Kills {
		if err := t.all(order{Do: "guarded", Nodes: s.Nodes}); err != nil {
			return o, err
		}
		if err := t.kill(i, s, &o); err != nil {
			return o, err
		}
	}
	return o, nil
}

// add starts a node in the place of number i, with its load.
func (t *trial) add(i int, s killing) error {
	cfg := t.config(i)
	if s.Again {
		if i == len(t.nodes) {
			t.addrs = append(t.addrs, [2]string{freeAddr(), freeAddr()})
		}
		cfg.Gossip, cfg.Peer = t.addrs[i][0], t.addrs[i][1]
	}
	n, err := t.launch(i, cfg)
	if err != nil {
		return err
	}
	if i < len(t.nodes) {
		t.nodes[i] = n
	} else {
		t.nodes = append(t.nodes, n)
	}
	n.from, n.to = s.Holds*i/s.Nodes, s.Holds*(i+1)/s.Nodes
	if _, err = n.tell(order{Do: "take", From: n.from, To: n.to}); err == nil {
		_, err = n.tell(order{Do: "work", To: workKeys, Nodes: s.Workers})
	}
	return err
}

// freeAddr returns an address that no process listens on.
func freeAddr() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Keys of the load, and how many of the dead node's are asked for.
const workKeys, probeKeys = 2000, 100

// kill lets nodes die, from the i-th on, and looks how the others fare.
func (t *trial) kill(i int, s killing, o *outcome) error {
	var victims []*process
	for j := range s.Die {
		victims = append(victims, t.nodes[(i+j)%len(t.nodes)])
	}
	others := slices.DeleteFunc(slices.Clone(t.nodes), func(n *process) bool { return slices.Contains(victims, n) })
	probe := others[0]
	var keys []int
	for _, n := range victims {
		r, err := probe.tell(order{Do: "owned", Name: n.name, To: probeKeys / s.Die})
		if err != nil {
			return err
		}
		keys = append(keys, r.Keys...)
	}
	for _, n := range others {
		if _, err := n.tell(order{Do: "passage"}); err != nil { // from now on
			return err
		}
	}
	before := t.counted(others)
	if before.err != nil {
		return before.err
	}
	begin := time.Now()
	mend, err := t.harm(victims, s)
	if err != nil {
		return err
	}
	late := max(time.Since(begin)-s.Apart*time.Duration(s.Die-1), 0) // since the last one
	again := make(chan error, 1)
	if s.Again {
		go func() {
			time.Sleep(s.After)
			again <- t.replace(victims, s)
		}()
	}
	got, err := probe.tell(order{Do: "probe", Keys: keys})
	if err != nil {
		return err
	}
	then := t.counted(others)
	if then.err != nil {
		return then.err
	}
	o.called(before.calls, then.calls, time.Since(begin).Seconds()*float64(len(others)))
	for _, ms := range got.Waits {
		o.locked = append(o.locked, time.Duration(ms*float64(time.Millisecond))+late)
	}
	o.worst = append(o.worst, slices.MaxFunc(o.locked[len(o.locked)-len(got.Waits):], cmp.Compare[time.Duration]))
	if t.Log {
		fmt.Fprintf(os.Stderr, "%s at %v, which took %v: the slowest key took %v\n", s.By.what, begin.UTC(), late, o.worst[len(o.worst)-1])
	}
	watched := s.TTL // how long after the others are asked for their observations
	if s.By.signal != syscall.SIGKILL {
		watched = s.Lasts
	} else if d := s.promise(); d > 0 {
		watched = 2 * d
	}
	if err := t.sleep(max(watched-time.Since(begin), 0)); err != nil {
		return err
	}
	for _, n := range others {
		w, err := n.tell(order{Do: "passage"})
		if err != nil {
			return err
		}
		for path, g := range w.Granted {
			o.granted[path] += g
		}
		if w.Errors > 0 {
			fmt.Fprintf(os.Stderr, "%s: %d locks failed at %s; one: %s\n", s.By.what, w.Errors, n.name, w.Trouble)
		}
		o.failed += w.Errors
		o.wait = max(o.wait, time.Duration(w.Wait*float64(time.Millisecond)))
		o.pause = max(o.pause, time.Duration(w.Pause*float64(time.Millisecond)))
	}
	after := t.counted(others)
	if after.err != nil {
		return after.err
	}
	o.lost += sum(after.lost) - sum(before.lost)
	o.held += len(others) * (s.Holds / s.Nodes)
	if s.Again {
		return <-again
	}
	if s.By.signal != syscall.SIGKILL {
		if err := mend(); err != nil {
			return err
		}
		if err := t.all(order{Do: "settle", Nodes: len(t.nodes)}); err != nil {
			return err
		}
		own := t.counted(victims)
		if own.err != nil {
			return own.err
		}
		o.own += sum(own.lost)
		o.had += len(victims) * (s.Holds / s.Nodes)
	}
	return t.replace(victims, s) // their locks are lost, and are taken by the next ones
}

// harm harms nodes by a cut or a signal. mend undoes it, where it can be undone.
func (t *trial) harm(victims []*process, s killing) (mend func() error, err error) {
	if s.By.cut != (lines{}) {
		var concerned []int
		for _, n := range victims {
			concerned = append(concerned, slices.Index(t.nodes, n))
		}
		return t.hosts.cut(concerned, s.By.cut)
	}
	for i, n := range victims {
		if i > 0 {
			if err := t.sleep(s.Apart); err != nil {
				return nil, err
			}
		}
		if err := n.Cmd.Process.Signal(s.By.signal); err != nil {
			return nil, err
		}
	}
	return func() (err error) {
		for _, n := range victims {
			err = errors.Join(err, n.Cmd.Process.Signal(syscall.SIGCONT))
		}
		return err
	}, nil
}

// replace ends nodes, and starts others in their places.
func (t *trial) replace(victims []*process, s killing) error {
	for _, n := range victims {
		n.end(true)
		if err := t.add(slices.Index(t.nodes, n), s); err != nil {
			return err
		}
	}
	return nil
}

// counted returns the counts of some nodes together.
func (t *trial) counted(nodes []*process) count {
	some := *t
	some.nodes = nodes
	return some.count()
}
