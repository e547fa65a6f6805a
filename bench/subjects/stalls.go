package subjects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/reexec"
)

// stallSizes: processes serve requests that arrive by the clock, each for one of many keys, while
// something goes wrong.
type stallSizes struct {
	rounds    int // of each scenario and lock, by turns
	processes int
	rate      float64 // requests per second and process
	keys      int
	hold      time.Duration // of a lock
	limit     time.Duration // for which a request waits before it fails

	calm   time.Duration // before anything happens
	every  time.Duration // from one restart to the next
	outage time.Duration // of Redis
	after  time.Duration // for which is watched what a killed process or an outage leaves behind

	sessionTTL time.Duration // for tests; 0: the library's default
}

// What must hold.
const (
	stallRolling = time.Second // longest wait while all processes are replaced, less than
	stallOutage  = time.Second // longest wait while Redis is down and after: all partitions have owners
	stallKilled  = time.Second // longest wait after a process was killed, besides Cluster.Takeover, or SessionTTL without, at most
)

const (
	stallOurs  = rivals.ClusterVariant
	stallRival = "redislock"
)

// stallPool is for how many requests a rival has a connection or a session in each process, if it
// needs one for each.
const stallPool = 64

// stallScenario is what goes wrong.
type stallScenario struct {
	name, short, title, about string

	redisOnly bool // it says nothing about locks elsewhere
	strike    func(*stallStage) error
}

var stallScenarios = []stallScenario{
	{name: "killed", short: "a process killed", title: "One process is killed (SIGKILL)",
		about:  "It cannot give anything back: what it held or owned is free when its session, or its locks, expire.",
		strike: (*stallStage).killed},
	{name: "rolling", short: "rolling restart", title: "Rolling restart: each process is replaced",
		about:  "A new process joins and gets the requests; the old one serves those it has, gives its keys away and ends.",
		strike: (*stallStage).rolling},
	{name: "outage", short: "Redis down", title: "Redis is killed, and comes back with its data",
		about:     "Owners go on granting from memory. Without Redis a lock that is kept there is not to be had.",
		redisOnly: true, strike: (*stallStage).outage},
}

// stallRun is what one variant did in one scenario.
type stallRun struct {
	stats.Tally
	scenario stallScenario
	variant  rivals.Variant
	arrived  int64
	failed   int64
	failure  string
	slow     int64
	stale    int64
	moments  int         // that were watched
	track    chart.Track // of the round with the longest wait
}

// merge adds another round.
func (r *stallRun) merge(x *stallRun) {
	if x.Waits.Longest > r.Waits.Longest {
		r.track = x.track
	}
	for _, round := range x.Rounds {
		r.Add(round)
	}
	r.Waits.Merge(&x.Waits)
	r.arrived += x.arrived
	r.failed += x.failed
	r.slow += x.slow
	r.stale += x.stale
	r.moments += x.moments
	if r.failure == "" {
		r.failure = x.failure
	}
}

// measureStalls takes about three minutes for each round, and a quarter of an hour with all rivals.
func measureStalls(ctx context.Context, b *Run) (_ report.Result, err error) {
	list := rivals.Chosen("stalls", b.Rivals)
	servers, err := rivals.StartServers(ctx, -1, list)
	if err != nil {
		return report.Result{}, err
	}
	defer func() { err = errors.Join(err, servers.Stop()) }()
	servers.Tell(b.Bench)
	var runs []*stallRun
	for _, scenario := range stallScenarios {
		for _, v := range list {
			if servers.Has(v) && !(scenario.redisOnly && v.Server != nil) {
				r := &stallRun{scenario: scenario, variant: v}
				if r.Untold = v.Unknown(); v.Server != nil {
					r.Untold = append(r.Untold, stats.MeasureServer) // Redis's is measured
				}
				runs = append(runs, r)
			}
		}
	}
	for round := range b.Sizes.stalls.rounds {
		for i := range runs {
			r := runs[(i+round)%len(runs)]
			name := r.scenario.name + ": " + r.variant.Name
			b.Progress.Step(name, round*len(runs)+i, b.Sizes.stalls.rounds*len(runs))
			x, err := b.Sizes.stalls.play(ctx, b, r.scenario, r.variant, servers.Conn(r.variant))
			if err != nil {
				return report.Result{}, fmt.Errorf("%s: %w", name, err)
			}
			r.merge(x)
		}
	}
	out := stallResults(b.Sizes.stalls, runs)
	describeServers(&out, servers, list)
	return out, nil
}

// stallStage is where a scenario is played: a redis-server and processes of its own.
type stallStage struct {
	ctx    context.Context
	b      harness.Bench // with that server
	sizes  stallSizes
	server *redistest.Server
	book   *stallBook
	task   stallTask
	begin  time.Time
	events []chart.Event
	redis  *redis.Client
	cpu    time.Duration // of the server, of its processes before this one
	since  time.Duration // what this one had used when the load began

	number int             // of processes that were started
	slots  []*stallProcess // the server of each

	mu      sync.Mutex     // protects what follows
	left    []error        // of processes that were to end
	used    []stats.Effort // by those that did
	failure string
	leaving sync.WaitGroup
}

// stallProcess is one of the processes that were started.
type stallProcess struct {
	*reexec.Worker
	number int
}

// play measures a variant, which has a server at conn if it is not on Redis.
func (s stallSizes) play(ctx context.Context, b *Run, scenario stallScenario, v rivals.Variant, conn string) (_ *stallRun, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dir, err := os.MkdirTemp(b.Dir, "stalls-")
	if err != nil {
		return nil, err
	}
	x := &stallStage{ctx: ctx, b: *b.Bench, sizes: s, task: stallTask{Book: filepath.Join(dir, "book"), stallLoadOptions: stallLoadOptions{
		Variant: v.Name, Server: conn, SessionTTL: s.sessionTTL,
		Slots: s.processes, Rate: s.rate, Keys: s.keys, Hold: s.hold, Limit: s.limit,
	}}}
	// A server of its own, whatever -redis says: it will be killed. Its data is to survive that.
	if x.server, err = redistest.New(dir, "--appendonly", "yes"); err != nil {
		return nil, err
	}
	defer x.server.Kill()
	x.b.Addr = x.server.Addr
	x.redis = redis.NewClient(&redis.Options{Addr: x.b.Addr})
	defer x.redis.Close()
	book, unmap, err := openBook(x.task.Book)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, unmap()) }()
	x.book = book
	defer func() {
		if err != nil {
			cancel()
		}
		err = errors.Join(err, x.end())
	}()

	for range s.processes {
		p, err := x.start()
		if p != nil {
			x.slots = append(x.slots, p)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := x.settled(); err != nil {
		return nil, err
	}
	for i, p := range x.slots {
		book.serves[i].Store(int64(p.number))
	}
	if x.since, err = harness.ServerCPU(ctx, x.redis); err != nil {
		return nil, err
	}
	x.begin = time.Now()
	book.begin.Store(x.begin.UnixNano())
	if err := x.pass(s.calm); err != nil {
		return nil, err
	}
	if err := scenario.strike(x); err != nil {
		return nil, err
	}
	took := time.Since(x.begin)
	book.over.Store(true)
	if err := x.end(); err != nil {
		return nil, err
	}
	if err := x.ended(); err != nil {
		return nil, err
	}
	return x.result(scenario, v, took), nil
}

// ended notes what the server has used; after it, another process of it begins, or none.
func (x *stallStage) ended() error {
	now, err := harness.ServerCPU(x.ctx, x.redis)
	x.cpu, x.since = x.cpu+now-x.since, 0
	return err
}

// start starts a process and waits until it is ready to lock.
func (x *stallStage) start() (*stallProcess, error) {
	x.number++
	w, err := x.b.Start(x.ctx, "stalls", harness.Order{Process: x.number})
	if err != nil {
		return nil, err
	}
	_, err = stallTasks.Do(w, x.task)
	return &stallProcess{w, x.number}, err
}

// settled waits until all partitions are owned, if the variant has such.
func (x *stallStage) settled() error {
	if x.task.Variant != stallOurs {
		return nil
	}
	_, err := allOwned(x.ctx, func() (views []view, err error) {
		for _, p := range x.slots {
			a, err := stallTasks.Do(p.Worker, x.task)
			if err != nil {
				return nil, err
			}
			views = append(views, a.view)
		}
		return views, nil
	})
	return err
}

// pass lets time pass.
func (x *stallStage) pass(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-x.ctx.Done():
		return x.ctx.Err()
	}
}

// happens notes an event that begins now.
func (x *stallStage) happens(name string) *chart.Event {
	x.events = append(x.events, chart.Event{Name: name, At: time.Since(x.begin).Seconds()})
	return &x.events[len(x.events)-1]
}

// leave ends a process in good order, in the background.
func (x *stallStage) leave(p *stallProcess) {
	x.leaving.Go(func() {
		t := x.task
		t.Leave = true
		a, err := stallTasks.Do(p.Worker, t)
		err = errors.Join(err, p.Stop())
		x.mu.Lock()
		defer x.mu.Unlock()
		x.left = append(x.left, err)
		if a != nil {
			x.used = append(x.used, a.Used)
			x.failure = cmp.Or(x.failure, a.Failure)
		}
	})
}

// end ends all processes that are left, and returns what went wrong with any.
func (x *stallStage) end() error {
	for _, p := range x.slots {
		x.leave(p)
	}
	x.slots = nil
	x.leaving.Wait()
	err := errors.Join(x.left...)
	x.left = nil
	return err
}

func (x *stallStage) rolling() error {
	for i, old := range x.slots {
		p, err := x.start()
		if err != nil {
			return errors.Join(err, x.drop(p))
		}
		x.slots[i] = p
		x.happens(fmt.Sprintf("%d replaced", i+1))
		x.book.serves[i].Store(int64(p.number))
		x.leave(old)
		if err := x.pass(x.sizes.every); err != nil {
			return err
		}
	}
	return nil
}

func (x *stallStage) killed() error {
	// A process that was alone at first relies on its lease: until that is over it has no guardians.
	if err := x.pass(cmp.Or(x.sizes.sessionTTL, 10*time.Second)); err != nil {
		return err
	}
	victim := x.slots[0]
	x.happens("killed")
	if err := victim.Cmd.Process.Kill(); err != nil {
		return err
	}
	x.book.serves[0].Store(int64(x.slots[1].number)) // the senders of requests see at once that it has gone
	_ = victim.Stop()                                // it says that it was killed
	x.slots = x.slots[1:]
	p, err := x.start()
	if err != nil {
		return errors.Join(err, x.drop(p))
	}
	x.slots = append(x.slots, p)
	x.happens("another joined")
	x.book.serves[0].Store(int64(p.number))
	return x.pass(x.sizes.after)
}

func (x *stallStage) outage() error {
	if err := x.ended(); err != nil {
		return err
	}
	down := x.happens("Redis is down")
	x.server.Kill()
	if err := x.pass(x.sizes.outage); err != nil {
		return err
	}
	if err := x.server.Restart(); err != nil {
		return err
	}
	down.To = time.Since(x.begin).Seconds()
	return x.pass(x.sizes.after)
}

// drop stops a process that could not be used, if there is one.
func (x *stallStage) drop(p *stallProcess) error {
	if p == nil {
		return nil
	}
	return p.Stop()
}

func (x *stallStage) result(scenario stallScenario, v rivals.Variant, took time.Duration) *stallRun {
	r := &stallRun{
		scenario: scenario, variant: v, failure: x.failure, slow: x.book.slow.Load(), stale: x.book.stale.Load(),
		track: chart.Track{Name: v.Name, Kind: v.Kind(), Events: x.events},
	}
	for i := range min(int(took/stallBucket), stallMoments) { // the last one is not over
		m := &x.book.moment[i]
		r.arrived += m.arrived.Load()
		r.failed += m.failed.Load()
		r.track.Done = append(r.track.Done, float64(m.done.Load()))
		r.track.Wait = append(r.track.Wait, float64(m.longest.Load()))
		r.track.Failed = append(r.track.Failed, float64(m.failed.Load()))
	}
	r.moments = len(r.track.Done)
	r.Waits = *x.book.histogram()
	round := stats.NewRound(took, x.cpu, x.used, &r.Waits)
	round.Parts = nil // no method chooses how many requests arrive where
	round.Rate = stats.Ratio(stats.Sum(r.track.Done), float64(r.moments)*stallBucket.Seconds())
	r.Add(round)
	return r
}
