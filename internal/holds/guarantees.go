//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A guarantee is an event of README's table of guarantees. Each time it has processes and a server
// of its own, and the default options but for those named here.
type guarantee struct {
	name    string // as that of an event, for -only
	what    string
	lasts   time.Duration // of a stop, or an outage
	cluster int           // of so many nodes; 0: three processes without one
	ttl     time.Duration // Options.SessionTTL; 0: its default
	victims int           // processes, the first ones
	live    bool          // these go on after it
	asked   time.Duration // when other processes begin to ask for keys
	lan     bool          // each process has a network namespace
	befall  func(*stand) error
}

// Processes hold so many keys each, and another process asks for so many that no process holds.
const standHolds, standAsks = 100, 100

// guarantees are in the order of README's rows.
func guarantees() []guarantee {
	const s, ms = time.Second, time.Millisecond
	return []guarantee{
		{name: "leave", what: "`Close`", cluster: 3, victims: 1, befall: (*stand).leave},
		{name: "leave", what: "`Close`", victims: 1, befall: (*stand).leave},
		{name: "crash", what: "SIGKILL", cluster: 3, victims: 1, befall: (*stand).kill},
		{name: "crash", what: "SIGKILL", victims: 1, befall: (*stand).kill},
		{name: "crash", what: "SIGKILL of three of five at once", cluster: 5, victims: 3, befall: (*stand).kill},
		{name: "still", what: "SIGSTOP", lasts: 1700 * ms, cluster: 3, victims: 1, live: true, befall: (*stand).standStill},
		{name: "still", what: "SIGSTOP", lasts: 2100 * ms, cluster: 3, victims: 1, live: true, befall: (*stand).standStill},
		{name: "still", what: "SIGSTOP", lasts: 2800 * ms, cluster: 3, victims: 1, live: true, befall: (*stand).standStill},
		{name: "still", what: "SIGSTOP", lasts: 6400 * ms, victims: 1, live: true, befall: (*stand).standStill},
		{name: "still", what: "SIGSTOP", lasts: 9100 * ms, victims: 1, live: true, befall: (*stand).standStill},
		{name: "stop", what: "Redis is away", lasts: 6000 * ms, cluster: 3, asked: s, befall: (*stand).outage},
		{name: "stop", what: "Redis is away", lasts: 9100 * ms, cluster: 3, asked: s, befall: (*stand).outage},
		{name: "stop", what: "Redis is away", lasts: 6000 * ms, asked: s, befall: (*stand).outage},
		{name: "stop", what: "Redis is away", lasts: 9100 * ms, asked: s, befall: (*stand).outage},
		{name: "stop", what: "Redis is away", lasts: 28500 * ms, cluster: 3, ttl: 35 * s, asked: s, befall: (*stand).outage},
		{name: "stop", what: "Redis is away", lasts: 31600 * ms, cluster: 3, ttl: 35 * s, asked: s, befall: (*stand).outage},
		{name: "stop", what: "Redis is away, SIGKILL after 1 s", lasts: 6000 * ms, cluster: 3, victims: 1, asked: s, befall: (*stand).outageAndKill},
		{name: "empty", what: "Redis without its data after", lasts: 5200 * ms, cluster: 3, asked: 5300 * ms, befall: (*stand).restart},
		{name: "empty", what: "Redis without its data after", lasts: 5200 * ms, asked: 5300 * ms, befall: (*stand).restart},
		{name: "empty", what: "Redis without its data after", lasts: 25200 * ms, cluster: 3, ttl: 35 * s, asked: 25300 * ms, befall: (*stand).restart},
		{name: "failover", what: "Redis fails over", cluster: 3, asked: 100 * ms, befall: (*stand).replaced},
		{name: "failover", what: "Redis fails over", asked: 100 * ms, befall: (*stand).replaced},
		{name: "failover", what: "Redis fails over, then SIGKILL after", lasts: s, cluster: 3, victims: 1, asked: 1500 * ms, befall: (*stand).replacedAndKill},
		{name: "failover", what: "Redis fails over, then SIGKILL after", lasts: 2500 * ms, cluster: 3, victims: 1, asked: 3000 * ms, befall: (*stand).replacedAndKill},
		{name: "apart", what: "cut from the process that asks for others", cluster: 3, lan: true, asked: 500 * ms, befall: (*stand).apart},
		{name: "apart", what: "cut from the process that asks, to which it gives all back after", lasts: s, cluster: 3, lan: true, victims: 1, befall: (*stand).givenAcross},
	}
}

// stand is one time of an event.
type stand struct {
	*trial
	guarantee
	struck          []*process // hit by the event
	others          []*process
	own, theirs     loss
	ofStruck, fresh answers
}

// A loss is how many locks were lost, and of how many.
type loss struct{ lost, held int }

// answers are how long other processes waited for keys, and how many they had not when they gave
// up.
type answers struct {
	waits []time.Duration
	not   int
}

// showGuarantees has each event so many times, some at once, and writes a row for each.
func (s setup) showGuarantees(ctx context.Context, out io.Writer, times, atOnce int, only string) error {
	fmt.Fprintf(out, "| event | for | in a cluster | `SessionTTL` | times | its locks that were lost | locks of others that were lost "+
		"| keys that it held, had by another process after | other keys, had by another process after |\n")
	fmt.Fprintf(out, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	all := slices.DeleteFunc(guarantees(), func(g guarantee) bool { return only != "" && !slices.Contains(strings.Split(only, ","), g.name) })
	if len(all) == 0 {
		return fmt.Errorf("-only has %q, which names no event", only)
	}
	results, errs := make([][]*stand, len(all)), make([]error, len(all)*times)
	var next atomic.Int64
	var work sync.WaitGroup
	for i := range all {
		results[i] = make([]*stand, times)
	}
	for range atOnce {
		work.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= len(errs) || ctx.Err() != nil {
					return
				}
				results[n/times][n%times], errs[n] = s.once(ctx, all[n/times])
			}
		})
	}
	work.Wait()
	failed := []error{ctx.Err()}
	for i, g := range all {
		switch err := errors.Join(errs[i*times : (i+1)*times]...); {
		case err != nil:
			failed = append(failed, fmt.Errorf("%s: %w", g.what, err))
		case ctx.Err() == nil:
			g.tell(out, results[i])
		}
	}
	return errors.Join(failed...)
}

func (g guarantee) tell(out io.Writer, times []*stand) {
	var sum stand
	for _, s := range times {
		sum.own.add(s.own)
		sum.theirs.add(s.theirs)
		sum.ofStruck.add(s.ofStruck)
		sum.fresh.add(s.fresh)
	}
	cluster, lasts := "no", ""
	if g.cluster > 0 {
		cluster = fmt.Sprint("of ", g.cluster)
	}
	if g.lasts > 0 {
		lasts = fmt.Sprintf("%.1f s", g.lasts.Seconds())
	}
	fmt.Fprintf(out, "| %s | %s | %s | %v | %d | %v | %v | %v | %v |\n", g.what, lasts, cluster, times[0].TTL, len(times), sum.own, sum.theirs, sum.ofStruck, sum.fresh)
}

func (c *loss) add(x loss) { c.lost, c.held = c.lost+x.lost, c.held+x.held }

func (c loss) String() string {
	if c.held == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d", c.lost, c.held)
}

func (a *answers) add(x answers) { a.waits, a.not = append(a.waits, x.waits...), a.not+x.not }

// String tells the median and the longest.
func (a answers) String() string {
	if len(a.waits)+a.not == 0 {
		return ""
	}
	slices.Sort(a.waits)
	text := fmt.Sprintf("%d not", a.not)
	if len(a.waits) > 0 {
		text = fmt.Sprintf("%.2f s, at most %.2f s", at(a.waits, 50).Seconds(), at(a.waits, 100).Seconds())
		if a.not > 0 {
			text += fmt.Sprintf("; %d not", a.not)
		}
	}
	return text
}

// once has an event happen to processes that were started for it.
func (s setup) once(ctx context.Context, g guarantee) (_ *stand, err error) {
	if g.ttl > 0 {
		s.TTL = g.ttl
	}
	s.Nodes = max(g.cluster, 3)
	if g.lan {
		s.hosts, err = newHosts(s.Nodes)
		defer func() { err = errors.Join(err, s.hosts.remove()) }()
		if err != nil {
			return nil, err
		}
	}
	t, end, err := newTrial(ctx, io.Discard, s)
	defer end()
	if err != nil {
		return nil, err
	}
	if err := t.populate(g.cluster == 0); err != nil {
		return nil, err
	}
	x := &stand{trial: t, guarantee: g, struck: t.nodes[:g.victims], others: t.nodes[g.victims:]}
	// A process that has just come has no guardians yet, or is on probation. The moment of the
	// event between two renewals is left to chance.
	if err := t.sleep(12*time.Second + rand.N(3*time.Second)); err != nil {
		return nil, err
	}
	return x, x.show()
}

// populate starts processes that hold keys.
func (t *trial) populate(alone bool) error {
	for i := range t.Nodes {
		cfg := t.config(i)
		cfg.Alone = alone
		n, err := t.launch(i, cfg)
		if err != nil {
			return err
		}
		t.nodes = append(t.nodes, n)
	}
	if !alone {
		if err := t.all(order{Do: "guarded", Nodes: t.Nodes}); err != nil {
			return err
		}
	}
	for i, n := range t.nodes {
		n.from, n.to = i*standHolds, (i+1)*standHolds
		if _, err := n.tell(order{Do: "take", From: n.from, To: n.to}); err != nil {
			return err
		}
	}
	return nil
}

// show causes the event, has two others ask for keys meanwhile, and counts the lost locks.
func (x *stand) show() error {
	within := x.lasts + x.TTL*3/2
	if x.live {
		within = x.lasts + 2*time.Second // they may go on to hold theirs
	}
	ask := func(n *process, to *answers, from int) error {
		if err := x.sleep(x.asked); err != nil {
			return err
		}
		r, err := n.tell(order{Do: "await", From: from, To: from + standAsks, Within: within})
		for _, w := range r.Waits {
			to.waits = append(to.waits, time.Duration(w*float64(time.Millisecond)))
		}
		to.not = standAsks - len(r.Waits)
		return err
	}
	errs := make(chan error, 3)
	go func() { errs <- x.befall(x) }()
	last := len(x.others) - 1
	go func() { errs <- ask(x.others[last], &x.fresh, len(x.nodes)*standHolds) }()
	asks := 2
	if x.victims > 0 {
		asks++
		go func() { errs <- ask(x.others[last-1], &x.ofStruck, x.struck[0].from) }()
	}
	for range asks {
		if err := <-errs; err != nil {
			return err
		}
	}
	if err := x.sleep(time.Second); err != nil {
		return err
	}
	if x.live {
		if err := x.unlock(x.struck, &x.own); err != nil {
			return err
		}
	}
	return x.unlock(x.others, &x.theirs)
}

// unlock gives locks back, and counts those that turn out to be lost.
func (x *stand) unlock(nodes []*process, to *loss) error {
	for _, n := range nodes {
		r, err := n.tell(order{Do: "unlock"})
		if err != nil {
			return err
		}
		to.add(loss{r.Free, standHolds})
	}
	return nil
}

// leave has processes give their locks back, without which Close would wait for them, and close.
func (x *stand) leave() error {
	for _, n := range x.struck {
		if _, err := n.tell(order{Do: "unlock"}); err != nil {
			return err
		}
		if _, err := n.tell(order{Do: "leave"}); err != nil {
			return err
		}
	}
	return nil
}

func (x *stand) kill() error {
	for _, n := range x.struck {
		if err := n.Cmd.Process.Kill(); err != nil {
			return err
		}
	}
	return nil
}

func (x *stand) standStill() error {
	mend, err := x.harm(x.struck, killing{By: harm{signal: syscall.SIGSTOP}})
	if err != nil {
		return err
	}
	if err := x.sleep(x.lasts); err != nil {
		return err
	}
	return mend()
}

func (x *stand) outage() error { return x.stopFor(x.lasts) }

func (x *stand) outageAndKill() error {
	if err := x.servers.primary.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	err := x.sleep(time.Second)
	return errors.Join(err, x.kill(), x.sleep(x.lasts-time.Second), x.servers.primary.Signal(syscall.SIGCONT))
}

// restart has a server without data in the place of Redis, after a while: it is ready then.
func (x *stand) restart() error {
	next, err := x.servers.start()
	if err != nil {
		return err
	}
	x.servers.primary.Kill()
	if err := x.sleep(x.lasts); err != nil {
		next.Kill()
		return err
	}
	return x.servers.point(next)
}

// replaced has the server's replica in its place.
func (x *stand) replaced() error { return x.servers.failOver(x.ctx) }

func (x *stand) replacedAndKill() error {
	if err := x.replaced(); err != nil {
		return err
	}
	return errors.Join(x.sleep(x.lasts), x.kill())
}

// apart cuts the first process, and all that it owns, from the one that asks for others.
func (x *stand) apart() error { return x.hosts.apart(0, len(x.nodes)-1) }

// givenAcross cuts the process that holds keys from the one that waits for them, and has it give
// them back after a while.
func (x *stand) givenAcross() error {
	if err := x.hosts.apart(0, slices.Index(x.nodes, x.others[len(x.others)-2])); err != nil {
		return err
	}
	if err := x.sleep(x.lasts); err != nil {
		return err
	}
	return x.unlock(x.struck, &x.own)
}
