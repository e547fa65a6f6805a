//go:build unix

package faults

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

var (
	deposedRounds  = flag.Int("deposed.rounds", 1, "`failovers` of each test in which the deposed server answers some nodes for delta")
	deposedAnswers = flag.Float64("deposed.answers", 0.8, "for how many `deltas` it answers; 16 are longer than Grace: then the judge finds two holders")
	deposedSeed    = flag.Uint64("deposed.seed", 0, "`seed` of what happens when; 0: another one in each run")
)

// deposed is a cluster whose server is deposed again and again: a replica is promoted, and some
// nodes go on with the server before for as long as the protocol lets it answer (delta).
type deposed struct {
	*fabric
	rand      *rand.Rand
	now, next *redistest.Server
	proxies   map[string]*redistest.Proxy // by node
	joined    int
}

// An event is a change of routes or nodes, at a time counted from the promotion.
type event struct {
	at   time.Duration
	what string
	do   func()
}

// delta is for how long a deposed server is assumed to answer.
func (j job) delta() time.Duration { return min(j.Grace-j.TTL-j.margin(), j.margin()) }

func newDeposed(t *testing.T, allReplicas int, args ...string) *deposed {
	t.Helper()
	seed := *deposedSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-deposed.seed %d", seed)
	args = append(args, "--repl-diskless-sync-delay", "0")
	d := &deposed{rand: rand.New(rand.NewPCG(seed, 0)), now: redistest.Start(t, args...), next: redistest.Start(t, args...),
		proxies: make(map[string]*redistest.Proxy)}
	follow(t, d.next, d.now)
	base := clustered("", 5*time.Second)
	base.Takeover, base.AllReplicas = 2*time.Second, allReplicas
	d.fabric = &fabric{scene: newScene(t, base), server: d.now, keys: keysOf("b")}
	for range 4 {
		d.join()
	}
	d.base.Cold = false
	d.awaitOwners(30 * time.Second)
	d.settle(d.keys...)
	return d
}

// join starts a node that takes turns with short locks, and with some that last.
func (d *deposed) join() {
	d.joined++
	name := fmt.Sprint("w", d.joined)
	d.proxies[name] = redistest.StartProxy(d.t, d.now.Addr)
	d.base.Redis = d.proxies[name].Addr
	last := task{Keys: keysOf("l"), Hold: span{0, 4 * time.Second}, Rest: span{0, 200 * time.Millisecond}}
	d.fabric.join(name, last, last, quietly(last))
}

func (d *deposed) within(from, to time.Duration) time.Duration {
	return from + time.Duration(d.rand.Int64N(int64(to-from)+1))
}

// crash kills a node.
func (d *deposed) crash() {
	name := d.names[d.rand.IntN(len(d.names))]
	d.forget(name)
	d.kill(d.node(name))
}

// strike promotes the replica. Each node goes on with the deposed server until a time of its own,
// some by turns with the promoted one. A node crashes at about that time, and another one starts.
// strike returns how long the deposed server answered.
func (d *deposed) strike() time.Duration {
	d.t.Helper()
	answers := time.Duration(*deposedAnswers * float64(d.base.delta()))
	var promoted time.Time
	all := []event{
		{0, "the replica is promoted", func() {
			promoted = time.Now()
			if err := d.next.Replicate(d.t.Context(), nil); err != nil {
				d.t.Fatal(err)
			}
		}},
		{answers, "the deposed server ends", d.now.Kill},
		// Its guardians have it buried at the one server while holders ask the other one for rows.
		{d.within(-d.base.Takeover-answers, -d.base.Takeover+2*answers), "a node crashes", d.crash},
	}
	for _, name := range d.names {
		to := func(s *redistest.Server) func() { return func() { d.proxies[name].Point(s.Addr) } }
		if d.rand.IntN(2) == 0 {
			all = append(all, event{-d.base.Takeover - answers, name + " reaches no server", func() { d.proxies[name].Point("") }})
			if d.rand.IntN(2) == 0 {
				all = append(all, event{d.within(0, answers/2), name + " reaches the deposed server", to(d.now)})
			}
		}
		there := max(0, d.within(-answers, answers))
		all = append(all, event{there, name + " goes to the promoted server", to(d.next)})
		if d.rand.IntN(3) == 0 {
			all = append(all, event{d.within(there, answers), name + " goes back", to(d.now)})
		}
	}
	if d.base.AllReplicas == 0 { // else no session begins until there is a replica again
		all = append(all, event{d.within(0, answers), "a node starts", d.join})
	}
	slices.SortStableFunc(all, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	begun := time.Now().Add(-all[0].at)
	var ended time.Time
	for _, e := range all {
		time.Sleep(time.Until(begun.Add(e.at)))
		d.t.Logf("%v: %s", e.at.Round(time.Millisecond), e.what)
		e.do()
		if e.at <= answers {
			ended = time.Now()
		}
	}
	d.now, d.next, d.server = d.next, d.now, d.next
	for _, proxy := range d.proxies {
		proxy.Point(d.now.Addr)
	}
	return ended.Sub(promoted)
}

// recover waits until all nodes work again, and the deposed server is the replica of the other one.
func (d *deposed) recover() {
	d.t.Helper()
	since := time.Now()
	if err := d.next.Restart(); err != nil {
		d.t.Fatal(err)
	}
	follow(d.t, d.next, d.now)
	if d.base.AllReplicas > 0 {
		d.join()
	}
	limit := d.base.Grace + 2*d.base.TTL + 10*time.Second
	d.judge.await(d.t, limit, "every node works again", each(d.names, byWorker, func(v visit) bool { return v.Entered.After(since) }))
	d.judge.await(d.t, limit, "every key is granted again",
		each(d.keys, byKey, func(v visit) bool { return v.Entered.After(since.Add(d.base.Grace)) }))
	d.awaitOwners(limit)
}

// run reports false if it has found a violation that may be the machine's fault: then the test is
// to be tried again.
func (d *deposed) run() (valid bool) {
	d.t.Helper()
	for range *deposedRounds {
		answered := d.strike()
		d.recover()
		found, broken := d.judge.violations()
		if len(found) > 0 && answered > d.base.delta() && *deposedAnswers <= 1 {
			d.t.Logf("the machine is slow: the deposed server answered for %v, and delta is %v: %v", answered, d.base.delta(), found)
			d.end()
			return false
		}
		if len(found)+len(broken) > 0 {
			break
		}
	}
	d.check()
	return true
}

// twice makes a cluster and runs, again if the machine was slow.
func twice(t *testing.T, allReplicas int, args ...string) {
	t.Helper()
	for range 2 {
		if newDeposed(t, allReplicas, args...).run() {
			return
		}
	}
	t.Error("violations, both times with a deposed server that answered for too long")
}

func TestADeposedServerThatAnswersGrantsNothingTwice(t *testing.T) {
	takes.Seconds(t)
	long(t)
	twice(t, 0)
}

func TestADeposedServerThatAnswersGrantsNothingTwiceThoughGraceEndsEarly(t *testing.T) {
	takes.Seconds(t)
	long(t)
	twice(t, 1, "--appendonly", "yes", "--appendfsync", "always")
}
