package subjects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
	"github.com/holdfast-go/holdfast/internal/histogram"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/reexec"
)

// stallSizes: processes serve requests that arrive by the clock, each for one of many keys, while
// something goes wrong.
type stallSizes struct {
	Rounds    int // of each scenario and lock, by turns
	Processes int
	Rate      float64 // requests per second and process
	Keys      int     // at most stallKeys
	Hold      time.Duration
	Limit     time.Duration // for which a request waits before it fails

	Calm   time.Duration // before anything happens
	Every  time.Duration // from one restart to the next
	Outage time.Duration // of Redis
	After  time.Duration // for which is watched what a killed process or an outage leaves behind

	SessionTTL time.Duration // for tests; 0: the library's default
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
	strike    func(*stallStage)
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
	failure  string
	track    chart.Track // of the round with the longest wait

	arrived, failed, slow, stale int64
	moments                      int // that were watched
}

// name is that of the row.
func (r *stallRun) name() string { return r.scenario.name + ": " + r.variant.Name }

// measureStalls takes about three minutes for each round, and a quarter of an hour with all rivals.
func measureStalls(ctx context.Context, b *Run) (report.Result, error) {
	list := rivals.Chosen("stalls", b.Rivals)
	servers, err := b.startServers(ctx, -1, list)
	if err != nil {
		return report.Result{}, err
	}
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
	for round := range b.Sizes.stalls.Rounds {
		for i := range runs {
			r := runs[(i+round)%len(runs)]
			b.Progress.Step(r.name(), round*len(runs)+i, b.Sizes.stalls.Rounds*len(runs))
			if err := r.play(ctx, b, servers.Conn(r.variant)); err != nil {
				return report.Result{}, fmt.Errorf("%s: %w", r.name(), err)
			}
		}
	}
	out := stallResults(b.Sizes.stalls, runs)
	describeServers(&out, servers, list)
	return out, nil
}

// stallStage is where a scenario is played: a redis-server and processes of its own. After an error
// nothing else is done there.
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
	err    error         // the first

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
	number int64
}

// play measures the variant once, which has a server at conn if it is not on Redis.
func (r *stallRun) play(ctx context.Context, b *Run, conn string) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dir, err := os.MkdirTemp(b.Dir, "stalls-")
	if err != nil {
		return err
	}
	s := b.Sizes.stalls
	x := &stallStage{ctx: ctx, b: *b.Bench, sizes: s, task: stallTask{
		stallSizes: s, Book: filepath.Join(dir, "book"), Variant: r.variant.Name, Server: conn,
	}}
	// A server of its own, whatever -redis says: it will be killed. Its data is to survive that.
	if x.server, err = redistest.New(dir, "--appendonly", "yes"); err != nil {
		return err
	}
	defer x.server.Kill()
	x.b.Addr = x.server.Addr
	x.redis = redis.NewClient(&redis.Options{Addr: x.b.Addr})
	defer x.redis.Close()
	book, unmap, err := openBook(x.task.Book)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unmap()) }()
	x.book = book
	x.slots = make([]*stallProcess, s.Processes)
	for i := range x.slots {
		x.slots[i] = x.start()
	}
	x.settled()
	x.do(func() (err error) {
		for i, p := range x.slots {
			book.serves[i].Store(p.number)
		}
		x.since, err = harness.ServerCPU(ctx, x.redis)
		x.begin = time.Now()
		book.begin.Store(x.begin.UnixNano())
		return err
	})
	x.pass(s.Calm)
	r.scenario.strike(x)
	took := time.Since(x.begin)
	if book.over.Store(true); x.err != nil {
		cancel()
	}
	x.end()
	x.ended()
	if x.err == nil {
		r.add(x, took)
	}
	return x.err
}

// do does what may fail, unless something has.
func (x *stallStage) do(f func() error) {
	if x.err == nil {
		x.err = f()
	}
}

// ended notes what the server has used; after it, another process of it begins, or none.
func (x *stallStage) ended() {
	x.do(func() error {
		now, err := harness.ServerCPU(x.ctx, x.redis)
		x.cpu, x.since = x.cpu+now-x.since, 0
		return err
	})
}

// start starts a process and waits until it is ready to lock. It returns nil if it is not.
func (x *stallStage) start() (p *stallProcess) {
	x.number++
	x.do(func() error {
		w, err := x.b.Start(x.ctx, "stalls", harness.Order{Process: x.number, SessionTTL: x.sizes.SessionTTL})
		if err != nil {
			return err
		}
		if _, err := stallTasks.Do(w, x.task); err != nil {
			return errors.Join(err, w.Stop())
		}
		p = &stallProcess{w, int64(x.number)}
		return nil
	})
	return p
}

// settled waits until all partitions are owned, if the variant has such.
func (x *stallStage) settled() {
	if x.task.Variant != stallOurs {
		return
	}
	x.do(func() error {
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
	})
}

// pass lets time pass.
func (x *stallStage) pass(d time.Duration) {
	x.do(func() error {
		select {
		case <-time.After(d):
		case <-x.ctx.Done():
		}
		return x.ctx.Err()
	})
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

// end ends all processes that are left.
func (x *stallStage) end() {
	for _, p := range x.slots {
		if p != nil {
			x.leave(p)
		}
	}
	x.leaving.Wait()
	x.err = errors.Join(append(x.left, x.err)...)
}

// replace has a new process serve a slot.
func (x *stallStage) replace(i int, event string) {
	if p := x.start(); p != nil {
		x.slots[i] = p
		x.happens(event)
		x.book.serves[i].Store(p.number)
	}
}

func (x *stallStage) rolling() {
	for i, old := range x.slots {
		x.replace(i, fmt.Sprintf("%d replaced", i+1))
		if x.err == nil {
			x.leave(old)
		}
		x.pass(x.sizes.Every)
	}
}

func (x *stallStage) killed() {
	// A process that was alone at first relies on its lease: until that is over it has no guardians.
	x.pass(cmp.Or(x.sizes.SessionTTL, 10*time.Second))
	x.do(func() error {
		victim := x.slots[0]
		x.happens("killed")
		if err := victim.Cmd.Process.Kill(); err != nil {
			return err
		}
		x.book.serves[0].Store(x.slots[1].number) // the senders of requests see at once that it has gone
		_ = victim.Stop()                         // it says that it was killed
		x.slots[0] = nil
		return nil
	})
	x.replace(0, "another joined")
	x.pass(x.sizes.After)
}

func (x *stallStage) outage() {
	x.ended()
	x.do(func() error {
		x.server.Kill()
		return nil
	})
	down := x.happens("Redis is down")
	x.pass(x.sizes.Outage)
	x.do(x.server.Restart)
	down.To = time.Since(x.begin).Seconds()
	x.pass(x.sizes.After)
}

// add adds what was seen on a stage.
func (r *stallRun) add(x *stallStage, took time.Duration) {
	track := chart.Track{Name: r.variant.Name, Kind: r.variant.Kind(), Events: x.events}
	for i := range min(int(took/stallBucket), stallMoments) { // the last one is not over
		m := &x.book.moment[i]
		r.arrived += m.arrived.Load()
		r.failed += m.failed.Load()
		track.Done = append(track.Done, float64(m.done.Load()))
		track.Wait = append(track.Wait, float64(m.longest.Load()))
		track.Failed = append(track.Failed, float64(m.failed.Load()))
	}
	waits := x.book.histogram()
	if waits.Longest > r.Waits.Longest {
		r.track = track
	}
	round := stats.NewRound(took, x.cpu, x.used, waits)
	round.Parts = nil // no method chooses how many requests arrive where
	round.Rate = stats.Ratio(stats.Sum(track.Done), float64(len(track.Done))*stallBucket.Seconds())
	r.Add(round)
	r.Waits.Merge(waits)
	r.slow, r.stale, r.moments = r.slow+x.book.slow.Load(), r.stale+x.book.stale.Load(), r.moments+len(track.Done)
	r.failure = cmp.Or(r.failure, x.failure)
}

// stallResults compares the variants, scenario by scenario.
func stallResults(s stallSizes, runs []*stallRun) report.Result {
	r := report.Result{
		Title: fmt.Sprintf("STALLS: %d processes, %s requests per second arrive by the clock, each for one of %s keys, for %v; %d rounds, by turns",
			s.Processes, stats.Number(s.Rate*float64(s.Processes)), figures.Thousands(int64(s.Keys)), s.Hold, s.Rounds),
		Table: [][]string{{"", "requests", "failed", fmt.Sprintf("waited > %v", stallSlow), "p50 wait ms", "p99", "p99.9", "longest"}},
		Notes: []string{
			"a wait counts from when the request should have arrived, and until it failed if it did; a request fails if it has no lock after " + s.Limit.String() +
				", or the lock says that it is not to be had",
			"rolling: a new process joins, gets the requests, and the old one leaves; another " + s.Every.String() + " later",
			"killed: the others get its requests at once, and a new process joins; requests that it had itself are not counted",
			"outage: Redis is killed, started again with its data (appendonly) after " + s.Outage.String() + ", and watched for " + s.After.String(),
			"what is per operation is of the processes that were not killed, with what it takes them to join and to leave, or to open and close;",
			"charts show the round with the longest wait of each",
		},
	}
	takeover := 3 * time.Second // the default of coord.Cluster.Takeover
	if ttl := s.SessionTTL; ttl > 0 && ttl <= takeover {
		takeover = ttl // which has none
	}
	var rival []rivals.Variant
	for _, x := range runs {
		if x.variant.Name != stallOurs {
			rival = append(rival, x.variant)
		}
	}
	r.Notes = append(r.Notes, describe(rival)...)
	for _, x := range runs {
		w := &x.Waits
		r.Table = append(r.Table, append([]string{
			x.name(), figures.Thousands(x.arrived), figures.Thousands(x.failed), figures.Thousands(x.slow),
		}, x.WaitCells()...))
		r.Distributions = append(r.Distributions, report.DistributionOf(w, x.name(), x.variant.Kind()))
		if x.failed > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf("%s, %s: %s failed; one: %s", x.scenario.name, x.variant.Name, figures.Thousands(x.failed), x.failure))
		}
		if x.variant.Name != stallOurs {
			continue
		}
		limit, text := stallRolling, x.scenario.name+": longest wait, seconds"
		switch x.scenario.name {
		case "outage":
			limit = stallOutage
		case "killed":
			limit, text = takeover+stallKilled, text+": until the others may take over from the process that was killed, and to do so"
		}
		r.Claims = append(r.Claims,
			report.AtMost(0, float64(x.failed), x.scenario.name+": locks that failed"),
			report.AtMost(limit.Seconds(), w.Longest.Seconds(), text),
			report.AtMost(0, float64(x.stale), x.scenario.name+": tokens not above the one before"),
			// Requests that arrive by the clock cannot be fewer because locks are slow; if they are, the
			// machine is.
			report.AtLeast(0.9, stats.Ratio(float64(x.arrived), s.Rate*float64(s.Processes)*float64(x.moments)*stallBucket.Seconds()),
				x.scenario.name+": requests that arrived, of those that should have"))
	}
	for _, scenario := range stallScenarios {
		list := slices.DeleteFunc(slices.Clone(runs), func(x *stallRun) bool { return x.scenario.name != scenario.name })
		line := chart.Timeline{
			Head:   chart.Head{Name: "stalls-" + scenario.name, Title: scenario.title, About: scenario.about},
			Bucket: stallBucket.Seconds(), Rate: "locks/s",
		}
		var all []report.Contestant
		for _, x := range list {
			all = append(all, report.Contestant{Name: x.name(), Kind: x.variant.Kind(), Tally: &x.Tally})
			line.Tracks = append(line.Tracks, x.track)
		}
		r.Compare(all)
		r.Figures = append(r.Figures, report.Figure{Timeline: &line})
		for _, x := range list[1:] {
			if x.variant.Name != stallRival {
				continue
			}
			r.Versus = append(r.Versus, chart.Ratio{
				Name:  fmt.Sprintf("%s, part of requests served within %v vs. %s", scenario.short, stallSlow, stallRival),
				Times: list[0].served() / x.served(),
			})
			if list[0].failed+x.failed == 0 { // a request that fails at once has not waited
				var times []float64
				for i, round := range x.Rounds {
					times = append(times, stats.Ratio(round.Max, list[0].Rounds[i].Max))
				}
				r.Versus = append(r.Versus, report.Against(fmt.Sprintf("%s, longest wait vs. %s", scenario.short, stallRival), times))
			}
		}
	}
	return r
}

// served is the part of the requests that had their lock in time. Those that failed may have waited
// for long as well, so this is the least that it can be.
func (r *stallRun) served() float64 {
	return 1 - stats.Ratio(float64(min(r.failed+r.slow, r.arrived)), float64(r.arrived))
}

var stallTasks = harness.NewTask("stall", stall)

// stallTask tells a worker what to do in a scenario. Before anything else it opens the lock, and
// from then on serves the slots that the book says.
type stallTask struct {
	stallSizes
	Book    string // file
	Variant string
	Server  string // how to connect to the variant's own
	Leave   bool   // serve what has arrived, and end
}

// stallResult is what the worker sees.
type stallResult struct {
	view                 // of Holdfast in a cluster
	Failure string       // of a request, if one failed
	Used    stats.Effort // since it began to serve
}

// stallLoad serves requests. They arrive by a clock, whether or not others are still waiting: a
// lock that is slow does not make for fewer requests.
type stallLoad struct {
	stallTask
	book   *stallBook
	me     int64
	prefix string
	locker *rivals.Locker
	close  func() error
	used   harness.Meter
	done   atomic.Int64

	clock    sync.WaitGroup // of the goroutines that let requests arrive
	requests sync.WaitGroup
	stop     chan struct{}
	failure  atomic.Pointer[string] // the first
}

func stall(ctx context.Context, h *harness.Host, t stallTask) (*stallResult, error) {
	l, err := harness.Kept(h, "load", func() (*stallLoad, error) { return openLoad(ctx, h, t) })
	if err != nil {
		return nil, err
	}
	if t.Leave {
		err = l.end()
	}
	r := &stallResult{Used: l.used.Read(l.done.Load())}
	if l.locker.Node != nil {
		r.view.of(l.locker.Node)
	}
	if failure := l.failure.Load(); failure != nil {
		r.Failure = *failure
	}
	return r, err
}

func openLoad(ctx context.Context, h *harness.Host, t stallTask) (_ *stallLoad, err error) {
	l := &stallLoad{stallTask: t, me: int64(h.Process), stop: make(chan struct{}), prefix: h.Namespace}
	book, unmap, err := openBook(t.Book)
	if err != nil {
		return nil, err
	}
	l.book = book
	client, count := harness.NewClient(h.Redis, 0)
	l.used = harness.NewMeter(count)
	v, _, err := rivals.FindVariant(t.Variant)
	if err == nil {
		l.locker, err = v.Open(rivals.Environment{Order: h.Order, Client: client, Server: t.Server, Goroutines: stallPool, Count: count})
	}
	if err != nil {
		return nil, errors.Join(err, client.Close(), unmap())
	}
	l.close = sync.OnceValue(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), harness.CloseTime)
		defer cancel()
		err := l.locker.Close(ctx)
		if book.over.Load() {
			err = nil // what cannot be given back, as in Grace, goes with the server
		}
		return errors.Join(err, client.Close(), unmap())
	})
	h.AtEnd(l.end)
	for slot := range l.Processes {
		l.clock.Go(func() { l.arrivals(ctx, slot) })
	}
	return l, nil
}

// end waits for the requests that have arrived, and closes the lock.
func (l *stallLoad) end() error {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.clock.Wait()
	l.requests.Wait()
	return l.close()
}

// arrivals lets requests arrive at a slot while it is this process's.
func (l *stallLoad) arrivals(ctx context.Context, slot int) {
	every := time.Duration(float64(time.Second) / l.Rate)
	wait := func(d time.Duration) bool {
		select {
		case <-time.After(d):
			return true
		case <-l.stop:
		case <-ctx.Done():
		}
		return false
	}
	for l.book.begin.Load() == 0 {
		if !wait(5 * time.Millisecond) {
			return
		}
	}
	begin := time.Unix(0, l.book.begin.Load())
	mine := false
	var next time.Time
	for !l.book.over.Load() {
		if !mine {
			n := max(time.Since(begin), 0)/every + 1
			next = begin.Add(n*every + every*time.Duration(slot)/time.Duration(l.Processes))
		}
		if !wait(time.Until(next)) {
			return
		}
		if mine = l.book.serves[slot].Load() == l.me; !mine {
			continue
		}
		arrived := next
		next = next.Add(every)
		l.requests.Go(func() { l.request(ctx, arrived) })
	}
}

// request is one of them. Its wait counts from when it should have arrived.
func (l *stallLoad) request(ctx context.Context, arrived time.Time) {
	l.book.at(arrived).arrived.Add(1)
	ctx, cancel := context.WithDeadline(ctx, arrived.Add(l.Limit))
	defer cancel()
	key, got := rand.IntN(l.Keys), false
	err := l.locker.Section(ctx, l.prefix+"-"+strconv.Itoa(key), func(fence uint64) {
		got = true
		l.book.waited(arrived, time.Since(arrived))
		l.book.granted(key, fence)
		time.Sleep(l.Hold) // what is done under the lock
	})
	if !got {
		l.book.waited(arrived, time.Since(arrived))
	}
	if err == nil {
		l.done.Add(1)
		l.book.at(time.Now()).done.Add(1)
		return
	}
	l.book.at(arrived).failed.Add(1)
	text := err.Error()
	l.failure.CompareAndSwap(nil, &text)
}

// stallBook is memory that the processes of a scenario share, a file mapped by each. What a process
// has written there stays when it is killed.
type stallBook struct {
	begin  atomic.Int64             // nanoseconds since 1970; 0: not yet
	over   atomic.Bool              // no requests arrive any more
	serves [stallSlots]atomic.Int64 // which process gets the requests that arrive at a slot
	stale  atomic.Int64             // tokens that were not above the last one of their key
	slow   atomic.Int64             // requests that waited for longer than stallSlow
	tokens [stallKeys]atomic.Uint64
	waits  [histogram.Buckets]atomic.Int64 // as those of a histogram
	moment [stallMoments]stallMoment
}

const (
	stallSlots   = 8
	stallKeys    = 1024
	stallMoments = 1200 // two minutes
	stallBucket  = 100 * time.Millisecond
	stallSlow    = 100 * time.Millisecond
)

// stallMoment is what happened in one stallBucket.
type stallMoment struct {
	arrived atomic.Int64
	done    atomic.Int64 // sections that ended then
	failed  atomic.Int64 // of what arrived then
	longest atomic.Int64 // wait of what arrived then, nanoseconds
}

func openBook(path string) (_ *stallBook, unmap func() error, err error) {
	mem, unmap, err := harness.MapFile(path, int(unsafe.Sizeof(stallBook{})))
	if err != nil {
		return nil, nil, err
	}
	return (*stallBook)(mem), unmap, nil
}

// at returns the moment that t belongs to. What is later than all belongs to the last.
func (b *stallBook) at(t time.Time) *stallMoment {
	i := t.Sub(time.Unix(0, b.begin.Load())) / stallBucket
	return &b.moment[min(max(int(i), 0), stallMoments-1)]
}

// waited notes how long a request waited that arrived at a moment, or until it failed.
func (b *stallBook) waited(arrived time.Time, d time.Duration) {
	for m := &b.at(arrived).longest; ; {
		seen := m.Load()
		if seen >= int64(d) || m.CompareAndSwap(seen, int64(d)) {
			break
		}
	}
	b.waits[histogram.Bucket(d)].Add(1)
	if d > stallSlow {
		b.slow.Add(1)
	}
}

// granted notes a token of a key, if there are tokens.
func (b *stallBook) granted(key int, fence uint64) {
	if fence != 0 && b.tokens[key].Swap(fence) >= fence {
		b.stale.Add(1)
	}
}

// histogram is that of all waits.
func (b *stallBook) histogram() *histogram.Histogram {
	h := new(histogram.Histogram)
	for i := range b.waits {
		h.Buckets[i] = b.waits[i].Load()
	}
	for i := range b.moment {
		h.Longest = max(h.Longest, time.Duration(b.moment[i].longest.Load()))
	}
	return h
}
