//go:build unix

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// killing is a measurement of what one node's death costs the others: each time one node of so many is killed, or suspended, while
// all are under load.
type killing struct {
	setup
	Kills   int
	Die     int           // so many nodes at once
	Suspend time.Duration // SIGSTOP for so long, in the place of SIGKILL; 0: not
	Again   bool          // the dead node's process starts again at once, at its address
	Workers int           // of each node
	Gap     time.Duration // how long after the signal nodes are asked what they saw
}

// outcome is what the kills of one number of nodes have shown.
type outcome struct {
	locked []time.Duration // for each key of the dead node's, until another node has locked it
	worst  []time.Duration // per kill, the longest of them
	wait   time.Duration   // the longest wait of a worker of the others
	pause  time.Duration   // the longest time in which no worker of a node got a lock
	lost   uint64          // locks of others
	held   int

	granted map[string]uint64 // to workers of the others, by path
}

// run measures clusters of each of the sizes.
func (s killing) run(ctx context.Context, out io.Writer, sizes string) error {
	fmt.Fprintf(out, "| nodes | signals | key locked again: p50 | p99 | longest | longest wait of a worker | longest pause of a node | lost by others | locks at Redis |\n")
	fmt.Fprintf(out, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for size := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(size)
		if err != nil || n <= s.Die {
			return fmt.Errorf("-kill-nodes has %q, must have numbers of more than -die, which is %d", size, s.Die)
		}
		s.Nodes = n
		o, err := s.cluster(ctx, out)
		if err != nil {
			return fmt.Errorf("%d nodes: %w", n, err)
		}
		slices.Sort(o.locked)
		fmt.Fprintf(out, "| %d | %d | %.2f s | %.2f s | %.2f s | %.2f s | %.2f s | %d of %d | %.2f %% |\n", n, len(o.worst), at(o.locked, 50).Seconds(),
			at(o.locked, 99).Seconds(), at(o.locked, 100).Seconds(), o.wait.Seconds(), o.pause.Seconds(), o.lost, o.held, 100*share(o.granted))
	}
	return nil
}

// at returns a percentile of sorted durations.
func at(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

func (s killing) cluster(ctx context.Context, out io.Writer) (o outcome, err error) {
	o.granted = make(map[string]uint64)
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
	cfg := nodeConfig{
		Name: fmt.Sprint("node ", i+1), Redis: t.servers.file(), Partitions: t.Partitions, TTL: t.TTL, Renew: t.Renew, Takeover: s.Takeover, Log: t.Log,
	}
	if s.Again {
		if i == len(t.nodes) {
			t.addrs = append(t.addrs, [2]string{freeAddr(), freeAddr()})
		}
		cfg.Gossip, cfg.Peer = t.addrs[i][0], t.addrs[i][1]
	}
	n, err := launch(cfg)
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
	signal := syscall.SIGKILL
	if s.Suspend > 0 {
		signal = syscall.SIGSTOP
	}
	begin := time.Now()
	for _, n := range victims {
		if err := n.cmd.Process.Signal(signal); err != nil {
			return err
		}
	}
	late := time.Since(begin)
	again := make(chan error, 1)
	if s.Again {
		go func() { again <- t.replace(victims, s) }()
	}
	got, err := probe.tell(order{Do: "probe", Keys: keys})
	if err != nil {
		return err
	}
	for _, ms := range got.Waits {
		o.locked = append(o.locked, time.Duration(ms*float64(time.Millisecond))+late)
	}
	o.worst = append(o.worst, slices.MaxFunc(o.locked[len(o.locked)-len(got.Waits):], cmp.Compare[time.Duration]))
	if err := t.sleep(max(s.Gap-time.Since(begin), 0)); err != nil {
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
	if s.Suspend > 0 {
		if err := t.sleep(max(s.Suspend-time.Since(begin), 0)); err != nil {
			return err
		}
		for _, n := range victims {
			_ = n.cmd.Process.Signal(syscall.SIGCONT)
		}
	}
	return t.replace(victims, s) // what they hold is lost, and is taken by the next ones
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

// counted is what some nodes say together.
func (t *trial) counted(nodes []*process) count {
	some := *t
	some.nodes = nodes
	return some.count()
}
