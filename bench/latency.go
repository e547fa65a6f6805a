package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/bench/chart"
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
func measureLatency(ctx context.Context, b *bench) (_ result, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, its, why := b.twoCores()
	list := b.chosen("latency")
	servers, err := startServers(ctx, its, list)
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, servers.stop()) }()
	caller, pinned, undo, err := b.startPinned(ctx, "latency")
	if err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, undo()) }()
	ws := []*worker{caller}
	defer func() {
		if err != nil {
			cancel()
		}
		for _, w := range ws {
			err = errors.Join(err, w.stop())
		}
	}()
	var owner *worker
	if err := placed(its, func() error {
		owner, err = b.start(ctx, "latency", order{Process: 2})
		return err
	}); err != nil {
		return result{}, err
	}
	ws = append(ws, owner)
	if why == "" {
		pinned += fmt.Sprintf(", the owner and the rivals' servers to core %d", its)
	}
	a, err := owner.do(task{Forward: &forwardTask{}})
	if err != nil {
		return result{}, err
	}
	t := latencyTask{Echo: a.Forward.Echo, Owner: owner.cmd.Process.Pid, Blocks: b.sizes.latency.blocks, Calls: b.sizes.latency.calls}
	for _, v := range list {
		if !servers.has(v) {
			continue
		}
		l := latencyRival{Variant: v.name, Server: servers.conn(v)}
		if v.server != nil {
			l.Process = servers.of(v.server).cmd.Process.Pid
		}
		t.Rivals = append(t.Rivals, l)
	}
	if a, err = caller.do(task{Latency: &t}); err != nil {
		return result{}, err
	}
	r := a.Latency.result(b.sizes.latency, list)
	servers.describe(&r, list)
	r.notes = append([]string{pinned}, r.notes...)
	return r, nil
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
		if l := &r.Lanes[i]; l.Rival && (len(best.P50) == 0 || median(l.P50) < median(best.P50)) {
			best = l
		}
	}
	return best
}

func (r *latencyResult) result(s latencySizes, list []variant) result {
	mutex, tcp, pair, best := r.lane(laneMutex), r.lane(laneTCP), r.lane(lanePair), r.fastest()
	out := result{
		title: fmt.Sprintf("LATENCY: one caller, %d keys in turn that nobody else wants, each locked and unlocked; %d blocks, by turns",
			s.calls, s.blocks),
		table: [][]string{{"microseconds", "p50", "(min..max)", "p99", "p99.9", "max", "p50 / TCP's", "/ best rival's", "locks/s",
			"commands", "bytes sent", "received", "CPU s per million", "of the server", "allocations"}},
	}
	for i := range r.Lanes {
		l := &r.Lanes[i]
		p50 := spreadOf(l.P50)
		per := func(total float64, known bool) string {
			if !known {
				return "-"
			}
			return number(total / float64(l.Calls))
		}
		title := l.Name
		if v, _, err := findVariant(l.Name); err == nil && l.Rival {
			title = v.title()
		}
		out.table = append(out.table, []string{
			title, microsOf(p50.median), microsOf(p50.least) + ".." + microsOf(p50.most),
			microsOf(l.P99), microsOf(l.P999), microsOf(l.Max),
			number(median(perRound(l.P50, tcp.P50))), number(median(perRound(l.P50, best.P50))),
			number(ratio(float64(l.Calls), l.Took.Seconds())),
			per(float64(l.Commands), l.Redis), per(float64(l.Sent), l.Sent > 0), per(float64(l.Received), l.Received > 0),
			// Microseconds per call are seconds per million of them.
			per(l.Client.Seconds()*1e6, true), per(l.Server.Seconds()*1e6, l.Served), per(float64(l.Allocs), true),
		})
	}
	own, forwarded, alone := r.lane(laneOwn), r.lane(laneForwarded), r.lane(laneAlone)
	var all []contestant
	for i := range r.Lanes {
		l := &r.Lanes[i]
		kind := chart.Floor
		if l.Rival || strings.HasPrefix(l.Name, "Holdfast") {
			kind = kindOf(l.Name)
		}
		out.rungs = append(out.rungs, bar(l.Name, kind, l.P50))
		all = append(all, contestant{l.Name, kind, l.tally()})
		if l.Rival {
			out.versus = append(out.versus, against("another node's key, one caller: "+l.Name, perRound(l.P50, forwarded.P50)))
		}
	}
	// What needs no network is compared with the mutex, and all else with a round trip.
	out.compareTo(laneMutex, only(all, func(name string) bool { return slices.Contains(inMemory, name) }), all)
	out.compareTo(laneTCP, only(all, func(name string) bool { return !slices.Contains(inMemory, name) }), all)
	out.notes = []string{
		"p50: of each block, median of the blocks; p99, p99.9 and max: of all calls; ratios: of the p50 in each block, median of the blocks",
		fmt.Sprintf("what takes less than a microsecond is timed %d calls at a time: its p99, p99.9 and max are of means of so many", laneBatch),
		"locks/s, commands, bytes, CPU, allocations: of all calls, with what they leave to be done in the 30 ms after each block",
		"commands: to Redis, a script being one; bytes: on the caller's connections to servers of locks, not on those between nodes",
		"CPU: of the caller's whole process, all goroutines; of the server: redis-server's (INFO), the owner's, or that of all processes",
		"of the rival's server, by the kernel's count of its threads",
		fmt.Sprintf("Holdfast's locks by path: own %s, forwarded %s, others %s; %s commands of its cluster's node in the blocks of its own keys",
			figures.Thousands(r.Own), figures.Thousands(r.Forwarded), figures.Thousands(r.Other), figures.Thousands(own.Commands)),
	}
	for _, v := range list {
		out.notes = append(out.notes, v.title()+": "+v.how)
	}
	stuck := 0
	for _, l := range r.Lanes {
		if l.Stuck > 0 {
			out.notes = append(out.notes, fmt.Sprintf("%s: %d calls had not returned after %v, and were given up", l.Name, l.Stuck, stuckAfter))
		}
		if !l.Rival {
			stuck += l.Stuck
		}
	}
	out.claims = []claim{
		atLeast(latencyOwn, median(perRound(best.P50, own.P50)), "median Lock and Unlock of an own key, times faster than "+best.Name),
		atMost(latencyForward, median(perRound(forwarded.P50, best.P50)), "median of another node's key, times that of "+best.Name),
		atMost(latencyAlone, median(perRound(alone.P50, pair.P50)), "median without a cluster, times SET NX PX and EVALSHA"),
		atMost(ownMutex*2, median(perRound(own.P50, mutex.P50)), "median of an own key, times a pair of sync.Mutex's"),
		atMost(latencyCalls, ratio(float64(own.Commands), float64(own.Calls)), "Redis commands per lock of an own key"),
		atMost(0, float64(stuck), "calls that had to be given up, of Holdfast and the floors"),
		atMost(0, float64(r.Other), "locks of the cluster that took another path than they should"),
	}
	return out
}

// inMemory are the lanes that need no network.
var inMemory = []string{laneMutex, laneKeyed, laneOwn}

func only(list []contestant, choose func(name string) bool) (some []contestant) {
	for _, c := range list {
		if choose(c.name) {
			some = append(some, c)
		}
	}
	return some
}

// tally is what the blocks were.
func (l *laneResult) tally() *tally {
	t := new(tally)
	for _, r := range l.Rounds {
		t.add(r)
	}
	if !l.Redis {
		t.untold = append(t.untold, measureCommands)
	}
	if l.Sent == 0 {
		t.untold = append(t.untold, measureBytes)
	}
	if !l.Served {
		t.untold = append(t.untold, measureServer)
	}
	return t
}

// microsOf writes nanoseconds as microseconds, in three digits at least.
func microsOf(ns float64) string {
	if math.IsNaN(ns) {
		return "-"
	}
	return strings.ReplaceAll(number(ns/float64(time.Microsecond)), ",", "")
}
