package subjects

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// stallSizes: processes serve requests that arrive by the clock, each for one of many keys, while
// something goes wrong.
type stallSizes struct {
	Rounds    int // of each scenario and lock, by turns
	Processes int
	Rate      float64 // requests per second and process
	Keys      int     // at most stallKeys
	Hold      time.Duration
	Limit     time.Duration // how long a request waits before it fails

	Calm   time.Duration // before anything happens
	Every  time.Duration // from one restart to the next
	Outage time.Duration // of Redis
	After  time.Duration // how long the effects of a killed process or an outage are watched

	// For tests.
	SessionTTL time.Duration // 0: the library's default
	without    string        // a scenario that is left out
}

// Limits.
const (
	stallRolling = time.Second // longest wait while all processes are replaced, less than
	stallOutage  = time.Second // longest wait while Redis is down and after: all partitions have owners
	stallKilled  = time.Second // longest wait after a process was killed, besides Cluster.Takeover or SessionTTL
)

const stallOurs = rivals.ClusterVariant

// stallPool is for how many requests a rival has a connection or a session in each process, if it
// needs one for each.
const stallPool = 64

// stallScenario is a fault.
type stallScenario struct {
	name      string
	limit     time.Duration // of the longest wait, besides Cluster.Takeover for a victim not seen to end
	victim    bool          // a process falls silent without a word
	ends      bool          // as it ends: other processes of its host may see that
	redisOnly bool          // it says nothing about locks elsewhere
	hold      time.Duration // 0: as the sizes say
	strike    func(*stallStage)
}

// atWork is for how long a request has its lock where the victim is to have some: a transaction, or
// a call of another service.
const atWork = 50 * time.Millisecond

// A process that is killed cannot give anything back: its keys are free when its session, or its
// locks, expire, or when others of its host have seen it end. If it stands still, as on a machine
// that is gone, no connection breaks, either. In a rolling restart a new process joins and gets the
// requests. The old one serves those it has, gives its keys away and ends. While Redis is down
// owners go on granting from memory, and a lock that is kept there is not to be had.
var stallScenarios = []stallScenario{
	{name: "killed", limit: stallKilled, victim: true, ends: true, strike: (*stallStage).killed},
	{name: "killed at work", limit: stallKilled, victim: true, ends: true, hold: atWork, strike: (*stallStage).killed},
	{name: "gone at work", limit: stallKilled, victim: true, hold: atWork, strike: (*stallStage).gone},
	{name: "rolling", limit: stallRolling, strike: (*stallStage).rolling},
	{name: "outage", limit: stallOutage, redisOnly: true, strike: (*stallStage).outage},
}

// stallRun is one variant in one scenario.
type stallRun struct {
	stats.Tally
	scenario stallScenario
	variant  rivals.Variant
	failure  string

	arrived, failed, slow, stale int64
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
		if scenario.name == b.Sizes.stalls.without {
			continue
		}
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
			"killed: a process is killed (SIGKILL) while it holds a lock, the others get its requests at once, and a new process joins; requests that it had itself are not counted",
			"killed at work: the same, where each request has its lock for " + atWork.String() + "; gone at work: the process stands still (SIGSTOP) for " + s.After.String() +
				" instead, as on a machine that is gone, so that no connection breaks",
			"outage: Redis is killed, started again with its data (appendonly) after " + s.Outage.String() + ", and watched for " + s.After.String(),
			"what is per operation is of the processes that were not killed, with what it takes them to join and to leave, or to open and close",
		},
	}
	takeover := 3 * time.Second     // the default of coord.Cluster.Takeover
	seen := runtime.GOOS == "linux" // processes of one host see each other end
	if ttl := s.SessionTTL; ttl > 0 && ttl <= takeover {
		takeover, seen = ttl, false // which has none
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
		if x.failed > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf("%s, %s: %s failed; one: %s", x.scenario.name, x.variant.Name, figures.Thousands(x.failed), x.failure))
		}
		if x.variant.Name != stallOurs {
			continue
		}
		limit, text := x.scenario.limit, x.scenario.name+": longest wait, seconds"
		if x.scenario.victim && !(x.scenario.ends && seen) {
			limit, text = takeover+limit, text+": until the others may take over from the process that was killed, and to do so"
		}
		r.Claims = append(r.Claims,
			report.AtMost(0, float64(x.failed), x.scenario.name+": locks that failed"),
			report.AtMost(limit.Seconds(), w.Longest.Seconds(), text),
			report.AtMost(0, float64(x.stale), x.scenario.name+": tokens not above the one before"),
			// Requests that arrive by the clock cannot be fewer because locks are slow; if they
			// are, the machine is.
			report.AtLeast(0.9, stats.Ratio(float64(x.arrived), s.Rate*float64(s.Processes)*x.Took.Seconds()),
				x.scenario.name+": requests that arrived, of those that should have"))
	}
	for _, scenario := range stallScenarios {
		var all []report.Contestant
		for _, x := range runs {
			if x.scenario.name == scenario.name {
				all = append(all, report.Contestant{Name: x.name(), Kind: x.variant.Kind(), Tally: &x.Tally})
			}
		}
		r.Compare(all)
	}
	return r
}
