//go:build unix

package faults

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// TestChaos commits random faults, one after the other or at once. HOLDFAST_FAULTS_CHAOS is the
// duration, as in HOLDFAST_FAULTS_CHAOS=5m go test -run Chaos -timeout 10m ./internal/faults.
// HOLDFAST_FAULTS_SEED repeats a run, as far as processes can.
func TestChaos(t *testing.T) {
	text := os.Getenv("HOLDFAST_FAULTS_CHAOS")
	if text == "" {
		t.Skip("takes minutes; set HOLDFAST_FAULTS_CHAOS to a duration")
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	if text := os.Getenv("HOLDFAST_FAULTS_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("HOLDFAST_FAULTS_SEED=%d", seed)
	c := &chaos{rand: rand.New(rand.NewPCG(seed, 0))}
	c.now, c.other = redistest.Start(t, persistent...), redistest.Start(t, persistent...)
	follow(t, c.other, c.now)
	c.proxy = redistest.StartProxy(t, c.now.Addr)
	c.scene = newScene(t, job{Redis: c.proxy.Addr, TTL: 2 * time.Second, Grace: 2500 * time.Millisecond})
	for range 5 {
		c.join()
	}
	c.settle(chaosKeys...)
	c.base.Cold = false

	for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); {
		faults := []func() string{
			c.cut, c.cut, c.away, c.freeze, c.freeze, c.freeze, c.crash, c.restart, c.promote, c.promote, c.empty,
		}
		what := faults[c.rand.IntN(len(faults))]()
		t.Logf("%s %s", time.Now().Format("05.000"), what)
		if c.rand.IntN(3) > 0 { // else the next one comes at once
			time.Sleep(c.upTo(4 * time.Second))
		}
		if found, broken := c.judge.violations(); len(found)+len(broken) > 0 {
			break
		}
		if c.rand.IntN(4) == 0 {
			c.calm()
		}
	}
	c.calm()
	c.check()
}

var persistent = []string{"--repl-diskless-sync-delay", "0", "--appendonly", "yes"}

var chaosKeys = []string{"a", "b", "c", "x", "y", "z"}

type chaos struct {
	*scene
	rand       *rand.Rand
	proxy      *redistest.Proxy
	now, other *redistest.Server
	joined     int
	thaws      []*time.Timer
}

func (c *chaos) upTo(d time.Duration) time.Duration { return time.Duration(c.rand.Int64N(int64(d))) }

// join starts a worker.
func (c *chaos) join() {
	c.joined++
	long := func(key string) task {
		return task{Keys: []string{key}, Hold: span{0, 3 * time.Second}, Rest: span{0, time.Second}}
	}
	c.start(fmt.Sprint("w", c.joined), brief("a", "b", "c"), impatient(brief("a", "b", "c")),
		long("x"), long("y"), quietly(long("z")))
}

// calm waits until every process works again and every key can be had.
func (c *chaos) calm() {
	c.t.Helper()
	since := time.Now()
	// Grace may have begun just now; a stopped process may have to expire, and the longest hold to
	// end.
	limit := c.base.Grace + 2*c.base.TTL + 10*time.Second
	at := c.judge.await(c.t, limit, "every process works again",
		each(c.names, byWorker, func(v visit) bool { return v.Entered.After(since) }))
	keys := c.judge.await(c.t, limit, "every key is granted again",
		each(chaosKeys, byKey, func(v visit) bool { return v.Entered.After(since) }))
	c.t.Logf("%s calm: every process after %v, every key after %v", time.Now().Format("05.000"),
		at.Sub(since).Round(time.Millisecond), keys.Sub(since).Round(time.Millisecond))
}

func (c *chaos) cut() string {
	c.proxy.Break()
	return "connections cut"
}

func (c *chaos) away() string {
	d := c.upTo(3 * time.Second)
	stopServer(c.t, c.now, syscall.SIGSTOP)
	time.Sleep(d)
	stopServer(c.t, c.now, syscall.SIGCONT)
	return fmt.Sprintf("redis stopped for %v", d)
}

// freeze stops a worker for a while, and does not wait for it.
func (c *chaos) freeze() string {
	name := c.names[c.rand.IntN(len(c.names))]
	i := slices.IndexFunc(c.workers, func(p *process) bool { return p.name == name })
	p, d := c.workers[i], c.upTo(5*time.Second)
	c.signal(p, syscall.SIGSTOP)
	thawed := make(chan struct{})
	c.thaws = append(c.thaws, time.AfterFunc(d, func() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		close(thawed)
	}))
	c.t.Cleanup(func() { <-thawed })
	return fmt.Sprintf("%s stopped for %v", name, d)
}

// crash kills a worker and starts another one.
func (c *chaos) crash() string {
	i := c.rand.IntN(len(c.names))
	name := c.names[i]
	w := slices.IndexFunc(c.workers, func(p *process) bool { return p.name == name })
	c.kill(c.workers[w])
	c.names = slices.Delete(c.names, i, i+1)
	c.join()
	return name + " killed, and another process started"
}

func (c *chaos) restart() string {
	c.now.Kill()
	time.Sleep(c.upTo(500 * time.Millisecond))
	if err := c.now.Restart(); err != nil {
		c.t.Fatal(err)
	}
	return "redis restarted with its data"
}

// empty puts an empty server in the place of the present one.
func (c *chaos) empty() string {
	c.proxy.Point("")
	c.now.Kill()
	c.now = redistest.Start(c.t, persistent...)
	c.proxy.Point(c.now.Addr)
	follow(c.t, c.other, c.now)
	return "redis replaced by an empty one"
}

// promote lets the other server take over, without the writes of the last while. It ends when the
// old one follows it.
func (c *chaos) promote() string {
	d := c.upTo(time.Second)
	if err := c.other.Replicate(c.t.Context(), nil); err != nil {
		c.t.Fatal(err)
	}
	time.Sleep(d)
	c.proxy.Point("")
	c.now.Kill()
	time.Sleep(c.upTo(500 * time.Millisecond))
	c.now, c.other = c.other, c.now
	c.proxy.Point(c.now.Addr)
	time.Sleep(c.upTo(500 * time.Millisecond))
	if err := c.other.Restart(); err != nil {
		c.t.Fatal(err)
	}
	follow(c.t, c.other, c.now)
	return fmt.Sprintf("replica promoted that missed the last %v", d)
}
