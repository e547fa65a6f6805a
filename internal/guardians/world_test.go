package guardians_test

import (
	"container/heap"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/guardians"
)

// world is some nodes, each with a clock of its own, the arbiter's table of sessions, and a
// network, on virtual time. It serves the state machines as a coordinator does. Real time is that
// of no clock.
type world struct {
	t     *testing.T
	rand  *rand.Rand
	now   time.Duration
	queue events
	order int
	times guardians.Times
	nodes []*node

	table  *fallback.Sessions
	server int
	clock  clock
	copies *fallback.Sessions
	dead   map[string]time.Duration // sessions that the arbiter has said are dead, and when first

	cut       map[[2]int]bool
	calm      bool // no message is late or lost
	asksLease bool // a mutant: the lease alone is announced
	broken    string
	buried    int
	changes   int
}

// Times of the protocol. Clocks are between slow and fast, whose ratio is that of T - M to T less a
// millisecond, in which the arbiter counts.
const (
	lease  = 10 * time.Second
	margin = time.Second
	grace  = 12 * time.Second
	renew  = 2500 * time.Millisecond
	slow   = 0.95
	fast   = slow * float64(lease-time.Millisecond) / float64(lease-margin)
)

// clock is a monotonic clock whose rate changes at times, or never.
type clock struct {
	base, at time.Duration // it said base at the real time at
	rate     float64
	wanders  bool
}

func (c *clock) read(now time.Duration) time.Duration {
	return c.base + time.Duration(float64(now-c.at)*c.rate)
}

func (c *clock) set(now time.Duration, rate float64) {
	c.base, c.at, c.rate = c.read(now), now, rate
}

// after returns the real time that passes until the clock has advanced by d, if it keeps its rate.
func (c *clock) after(d time.Duration) time.Duration { return time.Duration(float64(d) / c.rate) }

type happening struct {
	at    time.Duration
	order int
	do    func()
}
type events []happening

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].order < q[j].order
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(happening)) }
func (q *events) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

func newWorld(t *testing.T, seed uint64, nodes int, times guardians.Times) *world {
	w := &world{
		t: t, rand: rand.New(rand.NewPCG(seed, 1)), times: times, table: new(fallback.Sessions),
		dead: make(map[string]time.Duration), cut: make(map[[2]int]bool),
	}
	w.clock = w.newClock()
	w.table.Mark(w.moment(), "mark", 0)
	for i := range nodes {
		n := &node{w: w, i: i, clock: w.newClock(), relies: make(map[string]guardians.Instant)}
		w.nodes = append(w.nodes, n)
		n.start()
	}
	w.every(50*time.Millisecond, w.probe)
	return w
}

// newClock is mostly at an end of the range.
func (w *world) newClock() clock {
	c := clock{base: time.Duration(w.rand.Int64N(int64(time.Hour)))}
	switch w.rand.IntN(5) {
	case 0, 1:
		c.rate = slow
	case 2, 3:
		c.rate = fast
	default:
		c.rate, c.wanders = slow+w.rand.Float64()*(fast-slow), true
	}
	return c
}

func (w *world) moment() fallback.Moment {
	name := fmt.Sprint("server ", w.server)
	ms := 1_800_000_000_000 + w.clock.read(w.now).Milliseconds()
	return fallback.Moment{Now: ms, Server: name, Process: name, Grace: grace.Milliseconds()}
}

func (w *world) in(d time.Duration, do func()) {
	w.order++
	heap.Push(&w.queue, happening{w.now + max(d, 0), w.order, do})
}

func (w *world) every(d time.Duration, do func()) {
	w.in(d, func() { do(); w.every(d, do) })
}

func (w *world) run(until time.Duration) {
	for w.broken == "" && len(w.queue) > 0 && w.queue[0].at <= until {
		h := heap.Pop(&w.queue).(happening)
		w.now = h.at
		h.do()
	}
	w.now = max(w.now, until)
}

// delay is mostly short.
func (w *world) delay() time.Duration {
	d := time.Duration(w.rand.Int64N(int64(5 * time.Millisecond)))
	if !w.calm && w.rand.IntN(50) == 0 {
		d += time.Duration(w.rand.Int64N(int64(4 * time.Second)))
	}
	return d
}

// send delivers to a node, or to the arbiter (-1), unless the two are cut off from each other when
// it is sent.
func (w *world) send(from, to int, session string, do func()) {
	if w.cut[[2]int{min(from, to), max(from, to)}] || !w.calm && w.rand.IntN(100) == 0 {
		return
	}
	w.in(w.delay(), func() {
		if to < 0 {
			do()
			return
		}
		n := w.nodes[to]
		w.at(n, session, do)
	})
}

// at runs something in a node's process, if that has not ended.
func (w *world) at(n *node, session string, do func()) {
	switch {
	case !n.up || n.session != session:
	case n.stopped:
		n.inbox = append(n.inbox, func() { w.at(n, session, do) })
	default:
		do()
	}
}

func (w *world) died(session string) {
	if _, known := w.dead[session]; !known {
		w.dead[session] = w.now
	}
	w.check()
}

// probe asks after all sessions, and lets clocks wander.
func (w *world) probe() {
	for _, n := range w.nodes {
		if n.lease != 0 && w.table.Dead(w.moment(), n.session).Dead {
			w.died(n.session)
		}
	}
	w.check()
	for _, n := range w.nodes {
		if n.clock.wanders && w.rand.IntN(10) == 0 {
			n.clock.set(w.now, slow+w.rand.Float64()*(fast-slow))
		}
	}
}

// check: no session relies on itself, or on another one, that the arbiter has said is dead.
func (w *world) check() {
	for _, n := range w.nodes {
		if _, dead := w.dead[n.session]; dead && n.up && n.alive() && w.broken == "" {
			w.broken = fmt.Sprintf("%v: %s is dead at the arbiter, and valid by its own clock for %v", w.now, n.session, min(n.lease, n.ward.Until())-n.now())
		}
		for x, until := range n.relies {
			if _, dead := w.dead[x]; dead && n.up && n.now() < until && w.broken == "" {
				w.broken = fmt.Sprintf("%v: %s is dead at the arbiter, and %s relies on it for %v", w.now, x, n.session, until-n.now())
			}
		}
	}
}

// cutFor cuts two nodes off from each other, or a node and the arbiter, for a while.
func (w *world) cutFor(pair [2]int, d time.Duration) {
	w.cut[pair] = true
	w.in(d, func() { delete(w.cut, pair) })
}

// fault makes something go wrong, and right again.
func (w *world) fault() {
	i, j := w.rand.IntN(len(w.nodes)), w.rand.IntN(len(w.nodes)+1)-1
	n := w.nodes[i]
	d := time.Duration(w.rand.Int64N(int64(8 * time.Second)))
	switch w.rand.IntN(10) {
	case 9: // from the arbiter, so that its set stays, and from one node after another for longer than D
		w.cutFor([2]int{-1, i}, lease-2*margin)
		for k, at := range w.rand.Perm(len(w.nodes)) {
			w.in(time.Duration(at)*w.times.Promise*6/5, func() { w.cutFor([2]int{min(i, k), max(i, k)}, w.times.Promise*4/3) })
		}
	case 0, 1, 2: // a cut between two nodes, or a node and the arbiter
		w.cutFor([2]int{min(i, j), max(i, j)}, d)
	case 3: // from all nodes, and perhaps from the arbiter
		for k := -w.rand.IntN(2); k < len(w.nodes); k++ {
			w.cutFor([2]int{min(i, k), max(i, k)}, d)
		}
	case 4, 5:
		if n.up && !n.stopped {
			session := n.session
			n.stopped = true
			w.in(d, func() { n.resume(session) })
		}
	case 6:
		if n.up {
			n.end()
		}
	case 7:
		w.copies = w.table.Clone()
	case 8:
		w.server++
		if w.copies != nil {
			w.table = w.copies.Clone()
		} else {
			w.table = new(fallback.Sessions)
			w.table.Mark(w.moment(), "mark", grace.Milliseconds())
		}
		w.copies = nil
	}
}

func times3() guardians.Times {
	d := 3 * time.Second
	return guardians.Times{Promise: d, Margin: guardians.MarginFor(d, lease, margin) + noise, Noise: noise}
}

const noise = time.Millisecond

// chaos runs a world under faults.
func chaos(t *testing.T, seed uint64, times guardians.Times, mutate func(*world)) *world {
	w := newWorld(t, seed, 2+int(seed%5), times)
	if mutate != nil {
		mutate(w)
	}
	w.every(700*time.Millisecond, w.fault)
	w.run(3 * time.Minute)
	return w
}

var worldFor = flag.Duration("world.for", 2*time.Second, "how `long` to simulate worlds under faults")

// TestWorld_BuriedIsNotValid is a simulation by random schedules, with clocks at both ends of their
// range.
func TestWorld_BuriedIsNotValid(t *testing.T) {
	t.Parallel()
	first, begin := rand.Uint64(), time.Now()
	limit := *worldFor
	if testing.Short() {
		limit = 300 * time.Millisecond
	}
	runs, buried, changes, dead := 0, 0, 0, 0
	for ; runs < 10 || time.Since(begin) < limit; runs++ {
		w := chaos(t, first+uint64(runs), times3(), nil)
		if w.broken != "" {
			t.Fatalf("seed %d: %s", first+uint64(runs), w.broken)
		}
		buried, changes, dead = buried+w.buried, changes+w.changes, dead+len(w.dead)
	}
	t.Logf("%d worlds of 3 minutes from seed %d: %d sessions dead, %d buried, %d changes of a set", runs, first, dead, buried, changes)
	if buried == 0 || changes == 0 {
		t.Error("nothing was buried, or no set was changed")
	}
}

// TestWorld_Notices: the simulation notices promises without M_D (G2), and announcements that they
// do not bound (G4).
func TestWorld_Notices(t *testing.T) {
	for _, tt := range []struct {
		name   string
		times  guardians.Times
		mutate func(*world)
	}{
		{"no M_D", guardians.Times{Promise: 3 * time.Second}, nil},
		{"announcements by the lease", times3(), func(w *world) { w.asksLease = true }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(400) {
				if w := chaos(t, seed, tt.times, tt.mutate); w.broken != "" {
					t.Logf("after %d worlds: %s", seed+1, w.broken)
					return
				}
			}
			t.Error("nothing was noticed")
		})
	}
}

// settled is a world without faults, in which all have guardians.
func settled(t *testing.T, seed uint64, nodes int) *world {
	w := newWorld(t, seed, nodes, times3())
	w.calm = true
	w.run(30 * time.Second)
	for _, n := range w.nodes {
		if recorded, _, _ := n.ward.Sets(); !n.alive() || n.starts != 1 || len(recorded.Members) == 0 {
			t.Fatalf("seed %d: node %d of %d, started %d times, has guardians %v", seed, n.i, nodes, n.starts, recorded)
		}
	}
	return w
}

// TestWorld_CrashedIsBuriedSoon: sessions that crash are dead within D, by the slowest clock, and
// the moments that votes take.
func TestWorld_CrashedIsBuriedSoon(t *testing.T) {
	t.Parallel()
	seeds := uint64(10)
	if testing.Short() {
		seeds = 3
	}
	for _, tt := range []struct{ nodes, crash int }{{2, 1}, {3, 1}, {4, 1}, {5, 1}, {5, 2}, {8, 1}, {8, 2}} {
		var took []time.Duration
		for seed := range seeds {
			w := settled(t, seed, tt.nodes)
			begin := w.now
			for i := range tt.crash {
				w.nodes[i].end()
			}
			w.run(w.now + 12*time.Second)
			for i := range tt.crash {
				at, dead := w.dead[w.nodes[i].session]
				if !dead || w.broken != "" {
					t.Fatalf("%d nodes: not dead, %s", tt.nodes, w.broken)
				}
				took = append(took, at-begin)
			}
			for _, n := range w.nodes[tt.crash:] {
				if !n.alive() || n.starts != 1 {
					t.Errorf("%d nodes: node %d has lapsed, too", tt.nodes, n.i)
				}
			}
		}
		slices.Sort(took)
		t.Logf("%d of %d: dead after %v at the median, %v at most", tt.crash, tt.nodes, took[len(took)/2], took[len(took)-1])
		if d := took[len(took)-1]; d > 3500*time.Millisecond {
			t.Errorf("%d of %d: dead after %v", tt.crash, tt.nodes, d)
		}
	}
}

// TestWorld_CutFromOneSideGoesOn: a session that is cut off from all other nodes drops its
// guardians, and one that is cut off from the arbiter has its lease.
func TestWorld_CutFromOneSideGoesOn(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{2, 3, 5, 8} {
		for seed := range uint64(4) {
			w := settled(t, seed, nodes)
			for k := 1; k < nodes; k++ {
				w.cut[[2]int{0, k}] = true
			}
			w.run(w.now + 30*time.Second)
			if n := w.nodes[0]; n.starts != 1 || !n.alive() {
				t.Errorf("%d nodes, seed %d: lapsed when it was cut off from the others", nodes, seed)
			}
			clear(w.cut)
			w.run(w.now + 10*time.Second)
			if recorded, _, _ := w.nodes[0].ward.Sets(); len(recorded.Members) == 0 {
				t.Errorf("%d nodes, seed %d: it has no guardians, though it reaches them again", nodes, seed)
			}
			for k := range w.nodes {
				w.cut[[2]int{-1, k}] = true
			}
			w.run(w.now + 5*time.Second)
			clear(w.cut)
			w.run(w.now + 5*time.Second)
			for _, n := range w.nodes {
				if n.starts != 1 || !n.alive() {
					t.Errorf("%d nodes, seed %d: node %d lapsed when the arbiter was away for 5 s", nodes, seed, n.i)
				}
			}
		}
	}
}
