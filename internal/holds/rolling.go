//go:build unix

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"
)

// rolling is a measurement of a rolling restart: under load each node in turn leaves, and starts
// again under its name. Or of an outage of Redis under the same load.
type rolling struct {
	setup
	Workers int           // of each node
	Pause   time.Duration // between two of them
	Away    time.Duration // Redis is stopped for so long, in the place of restarts; 0: not
	Kill    bool          // half-way through that the first node is killed
}

// goals of a rolling restart.
const (
	goalShare = 0.01 // of all locks, at Redis
	goalGap   = 50 * time.Millisecond
	goalWait  = 100 * time.Millisecond
)

// passage is the result of a rolling restart.
type passage struct {
	granted map[string]uint64
	failed  uint64
	wait    time.Duration
	lost    uint64
	tenures []tenure
}

func (p *passage) add(r report) {
	for path, n := range r.Granted {
		p.granted[path] += n
	}
	if r.Errors > 0 {
		fmt.Fprintf(os.Stderr, "%d locks failed; one: %s\n", r.Errors, r.Trouble)
	}
	p.failed += r.Errors
	p.wait = max(p.wait, time.Duration(r.Wait*float64(time.Millisecond)))
	p.lost += sum(r.Lost)
	p.tenures = append(p.tenures, r.Tenures...)
}

// gaps returns for how long partitions had no owner, each time, sorted.
func (p *passage) gaps() (gaps []time.Duration) {
	slices.SortFunc(p.tenures, func(a, b tenure) int { return cmp.Compare(a.At, b.At) })
	given := make(map[uint32]int64)
	for _, t := range p.tenures {
		since, free := given[t.Partition]
		switch {
		case !t.Taken && !free:
			given[t.Partition] = t.At
		case t.Taken && free:
			gaps = append(gaps, time.Duration(t.At-since))
			delete(given, t.Partition)
		}
	}
	slices.Sort(gaps)
	return gaps
}

// run restarts each node in turn. It reports whether all goals were reached.
func (s rolling) run(ctx context.Context, out io.Writer) (good bool, err error) {
	t, end, err := newTrial(ctx, out, s.setup)
	defer end()
	if err != nil {
		return false, err
	}
	for i := range s.Nodes {
		if err := t.addRolling(i, s); err != nil {
			return false, err
		}
	}
	if err := t.all(order{Do: "guarded", Nodes: s.Nodes}); err != nil {
		return false, err
	}
	for _, n := range t.nodes { // from now on
		if _, err := n.tell(order{Do: "passage"}); err != nil {
			return false, err
		}
	}
	p := passage{granted: make(map[string]uint64)}
	begin := time.Now()
	if s.Away > 0 {
		err = t.outage(s)
	}
	for i := 0; s.Away == 0 && i < s.Nodes && err == nil; i++ {
		err = t.restart(i, s, &p)
	}
	if err != nil {
		return false, err
	}
	took := time.Since(begin)
	for _, n := range t.nodes {
		r, err := n.tell(order{Do: "passage"})
		if err != nil {
			return false, err
		}
		p.add(r)
	}
	return t.tellPassage(&p, took), nil
}

// outage stops Redis for a time, and kills a node half-way if it is to.
func (t *trial) outage(s rolling) error {
	if !s.Kill {
		return t.stopFor(s.Away)
	}
	if err := t.servers.primary.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	err := t.sleep(s.Away / 2)
	t.nodes[0].end(true)
	t.nodes = t.nodes[1:]
	err = errors.Join(err, t.sleep(s.Away/2), t.servers.primary.Signal(syscall.SIGCONT))
	back := time.Now()
	if err := errors.Join(err, t.all(order{Do: "guarded", Nodes: len(t.nodes)})); err != nil {
		return err
	}
	t.say("Redis was away for %v, and a node was killed half-way. All partitions had owners %.2f s after Redis was back.\n\n", s.Away, time.Since(back).Seconds())
	return nil
}

// addRolling starts a node in the place of number i, with its load.
func (t *trial) addRolling(i int, s rolling) error {
	cfg := t.config(i)
	cfg.Observed = true
	n, err := launch(cfg)
	if err != nil {
		return err
	}
	if i < len(t.nodes) {
		t.nodes[i] = n
	} else {
		t.nodes = append(t.nodes, n)
	}
	_, err = n.tell(order{Do: "work", To: workKeys, Nodes: s.Workers})
	return err
}

// restart lets a node leave, and starts it again once it has gone.
func (t *trial) restart(i int, s rolling, p *passage) error {
	old := t.nodes[i]
	r, err := old.tell(order{Do: "passage", Leave: true})
	if err != nil {
		return err
	}
	p.add(r)
	old.end(false)
	if err := t.addRolling(i, s); err != nil {
		return err
	}
	if err := t.settle(); err != nil {
		return err
	}
	return t.sleep(s.Pause)
}

// tellPassage writes the row of a table, and reports whether all goals were reached.
func (t *trial) tellPassage(p *passage, took time.Duration) bool {
	gaps := p.gaps()
	late := 0
	for _, g := range gaps {
		if g > goalGap {
			late++
		}
	}
	all, part := sum(p.granted), share(p.granted)
	t.say("| nodes | took | locks | failed | lost | of them at Redis | partitions given | without an owner: p50 | p99 | longest | longer than %v | longest wait |\n", goalGap)
	t.say("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	t.say("| %d | %.0f s | %d | %d | %d | %.2f %% | %d | %.0f ms | %.0f ms | %.0f ms | %d | %.0f ms |\n", t.Nodes, took.Seconds(), all, p.failed, p.lost,
		100*part, len(gaps), ms(at(gaps, 50)), ms(at(gaps, 99)), ms(at(gaps, 100)), late, ms(p.wait))
	return p.failed+p.lost == 0 && part < goalShare && late == 0 && p.wait < goalWait
}

// share returns the part of locks that were granted at Redis.
func share(granted map[string]uint64) float64 {
	return float64(granted["arbiter"]) / float64(max(sum(granted), 1))
}
