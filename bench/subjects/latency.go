package subjects

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// latencySizes: each block measures every lane, in an order that changes.
type latencySizes struct {
	blocks int
	calls  int // of each lane per block, each with another key
}

// What must hold of one caller with keys that no other one wants.
const (
	latencyOwn     = 100  // times as fast as the fastest rival, at least, where the caller's process owns the key
	latencyForward = 1    // times the fastest rival, at most, where another process does
	latencyAlone   = 1.3  // times SET NX PX and EVALSHA, at most, without a cluster
	latencyCalls   = 0.01 // Redis commands per lock of the caller's own key, at most
)

// measureLatency lets one caller lock keys that no other one wants, in all ways.
func measureLatency(ctx context.Context, b *Run) (_ report.Result, err error) {
	_, its, _ := b.TwoCores()
	list := rivals.Chosen("latency", b.Rivals)
	servers, err := rivals.StartServers(ctx, its, list)
	if err != nil {
		return report.Result{}, err
	}
	defer func() { err = errors.Join(err, servers.Stop()) }()
	caller, owner, pinned, stop, err := b.StartPair(ctx, "latency", "the owner and the rivals' servers")
	defer func() { err = errors.Join(err, stop(err != nil)) }()
	if err != nil {
		return report.Result{}, err
	}
	a, err := forwardTasks.Do(owner, forwardTask{})
	if err != nil {
		return report.Result{}, err
	}
	t := latencyTask{Echo: a.Echo, Owner: owner.Cmd.Process.Pid, Blocks: b.Sizes.latency.blocks, Calls: b.Sizes.latency.calls}
	for _, v := range list {
		if !servers.Has(v) {
			continue
		}
		l := latencyRival{Variant: v.Name, Server: servers.Conn(v)}
		if v.Server != nil {
			l.Process = servers.Of(v.Server).Cmd.Process.Pid
		}
		t.Rivals = append(t.Rivals, l)
	}
	r, err := latencyTasks.Do(caller, t)
	if err != nil {
		return report.Result{}, err
	}
	out := r.result(b.Sizes.latency, list)
	describeServers(&out, servers, list)
	out.Notes = append([]string{pinned}, out.Notes...)
	return out, nil
}

// lane returns what was measured of a lane.
func (r *latencyResult) lane(name string) *laneResult {
	i := slices.IndexFunc(r.Lanes, func(l laneResult) bool { return l.Name == name })
	if i < 0 {
		return &laneResult{}
	}
	return &r.Lanes[i]
}

// fastest returns the rival with the lowest median.
func (r *latencyResult) fastest() *laneResult {
	best := &laneResult{Name: "rival"}
	for i := range r.Lanes {
		if l := &r.Lanes[i]; l.Rival && (len(best.P50) == 0 || stats.Median(l.P50) < stats.Median(best.P50)) {
			best = l
		}
	}
	return best
}

func (r *latencyResult) result(s latencySizes, list []rivals.Variant) report.Result {
	mutex, tcp, pair, best := r.lane(laneMutex), r.lane(laneTCP), r.lane(lanePair), r.fastest()
	out := report.Result{
		Title: fmt.Sprintf("LATENCY: one caller, %d keys in turn that nobody else wants, each locked and unlocked; %d blocks, by turns",
			s.calls, s.blocks),
		Table: [][]string{{"microseconds", "p50", "(min..max)", "p99", "p99.9", "max", "p50 / TCP's", "/ best rival's", "locks/s",
			"commands", "bytes sent", "received", "CPU s per million", "of the server", "allocations"}},
	}
	for i := range r.Lanes {
		l := &r.Lanes[i]
		p50, t := stats.SpreadOf(l.P50), l.tally()
		per := func(total float64, known bool) string {
			if !known {
				return "-"
			}
			return stats.Number(t.Per(total))
		}
		title := l.Name
		if v, _, err := rivals.FindVariant(l.Name); err == nil && l.Rival {
			title = v.Title()
		}
		out.Table = append(out.Table, []string{
			title, microsOf(p50.Median), microsOf(p50.Least) + ".." + microsOf(p50.Most),
			microsOf(l.P99), microsOf(l.P999), microsOf(l.Max),
			stats.Number(stats.Median(stats.PerRound(l.P50, tcp.P50))), stats.Number(stats.Median(stats.PerRound(l.P50, best.P50))),
			stats.Number(stats.Ratio(float64(t.All.Sections), t.Took.Seconds())),
			per(float64(t.All.Commands), l.Redis), per(float64(t.All.Sent), t.All.Sent > 0), per(float64(t.All.Received), t.All.Received > 0),
			// Microseconds per call are seconds per million of them.
			per(t.All.CPU.Seconds()*1e6, true), per(t.Serving.Seconds()*1e6, l.Served), per(float64(t.All.Allocs), true),
		})
	}
	own, forwarded, alone := r.lane(laneOwn), r.lane(laneForwarded), r.lane(laneAlone)
	ours := own.tally().All
	var all []report.Contestant
	for i := range r.Lanes {
		l := &r.Lanes[i]
		kind := chart.Floor
		if l.Rival || strings.HasPrefix(l.Name, "Holdfast") {
			kind = report.KindOf(l.Name)
		}
		out.Rungs = append(out.Rungs, report.Bar(l.Name, kind, l.P50))
		all = append(all, report.Contestant{Name: l.Name, Kind: kind, Tally: l.tally()})
		if l.Rival {
			out.Versus = append(out.Versus, report.Against("another node's key, one caller: "+l.Name, stats.PerRound(l.P50, forwarded.P50)))
		}
	}
	// What needs no network is compared with the mutex, and all else with a round trip.
	out.CompareTo(laneMutex, only(all, func(name string) bool { return slices.Contains(inMemory, name) }), all)
	out.CompareTo(laneTCP, only(all, func(name string) bool { return !slices.Contains(inMemory, name) }), all)
	out.Notes = []string{
		"p50: of each block, median of the blocks; p99, p99.9 and max: of all calls; ratios: of the p50 in each block, median of the blocks",
		fmt.Sprintf("what takes less than a microsecond is timed %d calls at a time: its p99, p99.9 and max are of means of so many", laneBatch),
		"locks/s, commands, bytes, CPU, allocations: of all calls, with what they leave to be done in the 30 ms after each block",
		"commands: to Redis, a script being one; bytes: on the caller's connections to servers of locks, not on those between nodes",
		"CPU: of the caller's whole process, all goroutines; of the server: redis-server's (INFO), the owner's, or that of all processes",
		"of the rival's server, by the kernel's count of its threads",
		fmt.Sprintf("Holdfast's locks by path: own %s, forwarded %s, others %s; %s commands of its cluster's node in the blocks of its own keys",
			figures.Thousands(r.Own), figures.Thousands(r.Forwarded), figures.Thousands(r.Other), figures.Thousands(ours.Commands)),
	}
	for _, v := range list {
		out.Notes = append(out.Notes, v.Title()+": "+v.How)
	}
	stuck := 0
	for _, l := range r.Lanes {
		if l.Stuck > 0 {
			out.Notes = append(out.Notes, fmt.Sprintf("%s: %d calls had not returned after %v, and were given up", l.Name, l.Stuck, stuckAfter))
		}
		if !l.Rival {
			stuck += l.Stuck
		}
	}
	out.Claims = []report.Claim{
		report.AtLeast(latencyOwn, stats.Median(stats.PerRound(best.P50, own.P50)), "median Lock and Unlock of an own key, times faster than "+best.Name),
		report.AtMost(latencyForward, stats.Median(stats.PerRound(forwarded.P50, best.P50)), "median of another node's key, times that of "+best.Name),
		report.AtMost(latencyAlone, stats.Median(stats.PerRound(alone.P50, pair.P50)), "median without a cluster, times SET NX PX and EVALSHA"),
		report.AtMost(ownMutex*2, stats.Median(stats.PerRound(own.P50, mutex.P50)), "median of an own key, times a pair of sync.Mutex's"),
		report.AtMost(latencyCalls, stats.Ratio(float64(ours.Commands), float64(ours.Sections)), "Redis commands per lock of an own key"),
		report.AtMost(0, float64(stuck), "calls that had to be given up, of Holdfast and the floors"),
		report.AtMost(0, float64(r.Other), "locks of the cluster that took another path than they should"),
	}
	return out
}

// inMemory are the lanes that need no network.
var inMemory = []string{laneMutex, laneKeyed, laneOwn}

func only(list []report.Contestant, choose func(name string) bool) (some []report.Contestant) {
	for _, c := range list {
		if choose(c.Name) {
			some = append(some, c)
		}
	}
	return some
}

// tally is what the blocks were.
func (l *laneResult) tally() *stats.Tally {
	t := new(stats.Tally)
	for _, r := range l.Rounds {
		t.Add(r)
	}
	if !l.Redis {
		t.Untold = append(t.Untold, stats.MeasureCommands)
	}
	if t.All.Sent == 0 {
		t.Untold = append(t.Untold, stats.MeasureBytes)
	}
	if !l.Served {
		t.Untold = append(t.Untold, stats.MeasureServer)
	}
	return t
}

// microsOf writes nanoseconds as microseconds, in three digits at least.
func microsOf(ns float64) string {
	if math.IsNaN(ns) {
		return "-"
	}
	return strings.ReplaceAll(stats.Number(ns/float64(time.Microsecond)), ",", "")
}
