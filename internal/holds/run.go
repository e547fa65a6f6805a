//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
)

// setup is the parameters of a run.
type setup struct {
	Holds, Nodes, Partitions int
	TTL                      time.Duration
	Takeover                 time.Duration
	Unwatched                bool
	Renew                    time.Duration // Options.RenewEvery; 0: its default
	Cores                    float64
	AllReplicas              bool // redisarbiter.Options.AllReplicas
	Log                      bool

	hosts *hosts // a network namespace for each process; nil: all are on the loopback interface
}

// promise returns Cluster.Takeover as the nodes have it, 0 if it is off.
func (s setup) promise() time.Duration {
	d := s.Takeover
	if d == 0 {
		d = 3 * time.Second
	}
	if d >= s.TTL {
		return 0
	}
	return max(d, 0)
}

// trial is a run.
type trial struct {
	setup
	ctx     context.Context
	out     io.Writer
	servers *servers
	nodes   []*process  // that live
	lost    uint64      // as far as counted
	addrs   [][2]string // of nodes that start again at theirs: gossip, peers
	note    string      // a remark on the event
}

// newTrial starts the servers. end, which is to be called with an error as well, ends them and the
// nodes.
func newTrial(ctx context.Context, out io.Writer, s setup) (t *trial, end func(), err error) {
	dir, err := os.MkdirTemp("", "holds")
	if err != nil {
		return nil, func() {}, err
	}
	t = &trial{setup: s, ctx: ctx, out: out}
	t.servers, err = newServers(ctx, dir, s.hosts, s.AllReplicas)
	return t, func() {
		for _, n := range t.nodes {
			n.end(true)
		}
		t.servers.end()
		_ = os.RemoveAll(dir)
	}, err
}

// event is something that happens to the nodes or to Redis.
type event struct {
	name, what string
	do         func(*trial) error
}

var events = []event{
	{"stop", "Redis is stopped for half of T", (*trial).stop},
	{"leave", "a node leaves", (*trial).leave},
	{"crash", "a node is killed", (*trial).crash},
	{"failover", "Redis fails over", (*trial).failOver},
	{"empty", "Redis is replaced by an empty one", (*trial).empty},
}

func eventNames() string {
	var names []string
	for _, e := range events {
		names = append(names, e.name)
	}
	return strings.Join(names, ", ")
}

// run returns how many locks were lost.
func (s setup) run(ctx context.Context, out io.Writer, only string) (lost uint64, err error) {
	if s.Nodes < 4 {
		return 0, errors.New("-nodes must be at least 4: two of them go")
	}
	t, end, err := newTrial(ctx, out, s)
	defer end()
	if err != nil {
		return 0, err
	}
	if err := t.begin(); err != nil {
		return 0, err
	}
	for _, e := range events {
		if only != "" && !slices.Contains(strings.Split(only, ","), e.name) {
			continue
		}
		if err := t.show(e); err != nil {
			return t.lost, fmt.Errorf("%s: %w", e.what, err)
		}
	}
	return t.lost, t.finish()
}

// config returns the parameters of node number i.
func (t *trial) config(i int) nodeConfig {
	return nodeConfig{
		Name: fmt.Sprint("node ", i+1), Redis: t.servers.file(), Partitions: t.Partitions, TTL: t.TTL, Renew: t.Renew, Takeover: t.Takeover, Unwatched: t.Unwatched, Log: t.Log,
		Cores: t.Cores, AllReplicas: t.AllReplicas,
	}
}

// begin starts the nodes, and has all but the last two take the locks.
func (t *trial) begin() error {
	holders := t.Nodes - 2
	for i := range t.Nodes {
		n, err := launch(t.config(i))
		if err != nil {
			return err
		}
		t.nodes = append(t.nodes, n)
		if i < holders {
			n.from, n.to = t.Holds*i/holders, t.Holds*(i+1)/holders
		}
	}
	if err := t.settle(); err != nil {
		return err
	}
	start := time.Now()
	for _, n := range t.nodes {
		if _, err := n.tell(order{Do: "take", From: n.from, To: n.to}); err != nil {
			return err
		}
	}
	t.say("%d nodes hold %d locks in %d partitions of %d nodes; they took %.1f s\n\n", holders, t.Holds, t.Partitions, t.Nodes, time.Since(start).Seconds())
	t.say("| event | over after | lost | reclaims and adoptions | reads | failed calls | sessions lost | Redis core meanwhile | Redis core per R at rest |\n")
	t.say("| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	after := t.count()
	before := after
	before.held, before.lost = t.Holds, nil // those that were lost while others were taken count, too
	return t.row("none", time.Now(), 0, before, after)
}

func (t *trial) say(format string, args ...any) { fmt.Fprintf(t.out, format, args...) }

// settle waits until all nodes have their shares.
func (t *trial) settle() error { return t.all(order{Do: "settle", Nodes: len(t.nodes)}) }

// all gives an order to all nodes at the same time.
func (t *trial) all(x order) error {
	errs := make(chan error)
	for _, n := range t.nodes {
		go func() { _, err := n.tell(x); errs <- err }()
	}
	var err error
	for range t.nodes {
		err = errors.Join(err, <-errs)
	}
	return err
}

// count is the counts of the nodes together.
type count struct {
	held     int
	lost     map[string]uint64
	sessions uint64
	calls    map[string]uint64
	failed   map[string]uint64
	err      error
}

func (t *trial) count() count {
	c := count{lost: make(map[string]uint64), calls: make(map[string]uint64), failed: make(map[string]uint64)}
	for _, n := range t.nodes {
		if n.to == 0 { // it may go, and its counts with it
			continue
		}
		r, err := n.tell(order{Do: "state"})
		if err != nil {
			c.err = err
			return c
		}
		c.held += r.Held
		c.sessions += r.Sessions
		for k, v := range r.Lost {
			c.lost[k] += v
		}
		for k, v := range r.Calls {
			c.calls[k] += v
		}
		for k, v := range r.Failed {
			c.failed[k] += v
		}
	}
	return c
}

func sum(m map[string]uint64) (n uint64) {
	for v := range maps.Values(m) {
		n += v
	}
	return n
}

// kinds lists the counts that have risen, and by how much.
func kinds(before, after map[string]uint64) string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(after)) {
		if n := after[k] - before[k]; n > 0 {
			list = append(list, fmt.Sprintf("%s %d", k, n))
		}
	}
	if list == nil {
		return ""
	}
	return " (" + strings.Join(list, ", ") + ")"
}

// show lets an event happen, waits until all is well again, and for as long after that as something
// might still lapse.
func (t *trial) show(e event) error {
	before := t.count()
	if before.err != nil {
		return before.err
	}
	used, err := t.servers.used(t.ctx)
	if err != nil {
		return err
	}
	primary, begun := t.servers.primary, time.Now()
	if err := e.do(t); err != nil {
		return err
	}
	if err := t.settle(); err != nil {
		return err
	}
	took := time.Since(begun)
	if err := t.sleep(t.TTL); err != nil { // longer than any lease
		return err
	}
	if t.servers.primary != primary {
		used = 0
	}
	now, err := t.servers.used(t.ctx)
	if err != nil {
		return err
	}
	what := e.what + t.note
	t.note = ""
	return t.rowAfter(what, took, now-used, before, t.count())
}

func (t *trial) row(what string, begun time.Time, used time.Duration, before, after count) error {
	return t.rowAfter(what, time.Since(begun), used, before, after)
}

// rowAfter reports an event, and Redis's load at rest after it.
func (t *trial) rowAfter(what string, took, used time.Duration, before, after count) error {
	if after.err != nil {
		return after.err
	}
	start, err := t.servers.used(t.ctx)
	if err != nil {
		return err
	}
	const periods = 2
	if err := t.sleep(periods * t.TTL / 4); err != nil {
		return err
	}
	rest, err := t.servers.used(t.ctx)
	if err != nil {
		return err
	}
	last := t.count()
	if last.err != nil {
		return last.err
	}
	lost := uint64(max(before.held-last.held, int(sum(last.lost)-sum(before.lost))))
	t.lost += lost
	t.say("| %s | %.1f s | %d of %d%s | %d | %d | %s | %d | %.2f s | %.0f ms |\n", what, took.Seconds(), lost, before.held, kinds(before.lost, last.lost),
		after.calls["reclaim"]-before.calls["reclaim"], after.calls["verify"]-before.calls["verify"],
		fmt.Sprint(sum(after.failed)-sum(before.failed))+kinds(before.failed, after.failed),
		last.sessions-before.sessions, used.Seconds(), float64((rest-start).Milliseconds())/periods)
	return nil
}

func (t *trial) sleep(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-t.ctx.Done():
		return t.ctx.Err()
	}
}

func (t *trial) stop() error { return t.stopFor(t.TTL / 2) }

// stopFor stops Redis for a time.
func (t *trial) stopFor(d time.Duration) error {
	if err := t.servers.primary.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	err := t.sleep(d)
	return errors.Join(err, t.servers.primary.Signal(syscall.SIGCONT))
}

// last takes the last node out of the list.
func (t *trial) last() *process {
	n := t.nodes[len(t.nodes)-1]
	t.nodes = t.nodes[:len(t.nodes)-1]
	return n
}

func (t *trial) leave() error {
	n := t.last()
	_, err := n.tell(order{Do: "leave"})
	n.end(err != nil)
	return err
}

func (t *trial) crash() error {
	t.last().end(true)
	return t.sleep(t.TTL)
}

func (t *trial) failOver() error {
	if err := t.servers.failOver(t.ctx); err != nil {
		return err
	}
	return t.grace()
}

func (t *trial) empty() error {
	t.servers.primary.Kill()
	if err := t.servers.fresh(); err != nil {
		return err
	}
	if t.AllReplicas {
		if err := t.servers.follow(t.ctx); err != nil {
			return err
		}
	}
	return t.grace()
}

// grace waits until no partition is in Grace, and notes how long that took.
func (t *trial) grace() error {
	begun := time.Now()
	client := redis.NewClient(&redis.Options{Addr: t.servers.primary.Addr})
	defer client.Close()
	q := t.TTL * 6 / 5
	o := t.redisOptions()
	o.ColdStart = false // an empty server is in Grace
	ns, err := redisarbiter.New(client, o).Attach(t.ctx, fallback.Settings{
		Namespace: namespace, Partitions: t.Partitions, Grace: q, Lease: t.TTL + t.TTL/10,
	})
	if err != nil {
		return err
	}
	defer ns.Close()
	all := make([]fallback.Read, t.Partitions)
	for i := range all {
		all[i].Partition = uint32(i)
	}
	for {
		states := ns.Verify(t.ctx, all)
		if !slices.ContainsFunc(states, func(s fallback.State) bool { return s.Err != nil || s.Record.Grace > 0 }) {
			t.note = fmt.Sprintf("; no partition in Grace after %.1f s", time.Since(begun).Seconds())
			return nil
		}
		if time.Since(begun) > 3*q {
			return fmt.Errorf("partitions are in Grace after %v: %w", 3*q, states[0].Err)
		}
		if err := t.sleep(100 * time.Millisecond); err != nil {
			return err
		}
	}
}

func (s setup) redisOptions() *redisarbiter.Options {
	o := &redisarbiter.Options{ColdStart: true}
	if s.AllReplicas {
		o.AllReplicas = 1
	}
	return o
}

// finish looks whether the locks exclude each other, and gives them back.
func (t *trial) finish() error {
	tried, free := 0, 0
	for i, n := range t.nodes {
		other := t.nodes[(i+1)%len(t.nodes)]
		if other.to == 0 {
			continue
		}
		step := max((other.to-other.from)/1000, 1)
		r, err := n.tell(order{Do: "try", From: other.from, To: other.to, Step: step})
		if err != nil {
			return err
		}
		tried += (other.to - other.from + step - 1) / step
		free += r.Free
	}
	late := 0
	for _, n := range t.nodes {
		r, err := n.tell(order{Do: "unlock"})
		if err != nil {
			return err
		}
		late += r.Free
	}
	t.say("\nOther nodes tried %d of these keys: %d were free. Unlock said ErrLost of %d. Lost in all: %d.\n", tried, free, late, t.lost)
	if uint64(free+late) > 0 {
		t.lost = max(t.lost, uint64(free+late))
	}
	return nil
}
