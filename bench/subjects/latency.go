package subjects

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// latencySizes: each block measures every lane, in an order that changes.
type latencySizes struct {
	Blocks int
	Calls  int // of each lane per block, each with another key
}

// Limits for one caller with keys that no other one wants.
const (
	latencyOwn     = 100  // times as fast as the fastest rival, at least, where the caller's process owns the key
	latencyForward = 1    // times the fastest rival, at most, where another process does
	latencyAlone   = 1.3  // times SET NX PX and EVALSHA, at most, without a cluster
	latencyCalls   = 0.01 // Redis commands per lock of the caller's own key, at most
)

// The lanes that are not rivals.
const (
	laneMutex     = "sync.Mutex"
	laneKeyed     = "mutex per key, in the process"
	laneTCP       = "TCP round trip of one byte"
	lanePing      = "PING"
	laneSet       = "SET NX PX"
	lanePair      = "SET NX PX and EVALSHA"
	laneOwn       = "Holdfast cluster, own key"
	laneForwarded = "Holdfast cluster, another's key"
	laneAlone     = "Holdfast without a cluster"
)

// inMemory are the lanes that need no network.
var inMemory = []string{laneMutex, laneKeyed, laneOwn}

// stuckAfter is when a call is given up. There are rivals that lose a wake-up and would wait for
// ever.
const stuckAfter = 2 * time.Second

// laneBatch is how many calls are timed at a time where one takes as long as looking at the clock.
const laneBatch = 100

type latencyTask struct {
	latencySizes
	Echo   string // address of the owner's echo of bytes
	Owner  int    // its process
	Rivals []latencyRival
}

type latencyRival struct {
	Variant string
	Server  string // how to connect to its own
	Process int    // which that is; 0: it has none but Redis
}

var latencyTasks = newLanes("latency", openLatency)

// openLatency makes the worker the only caller of everything.
func openLatency(ctx context.Context, h *harness.Host, t latencyTask, r *laneRun) error {
	conn, err := net.Dial("tcp", t.Echo)
	if err != nil {
		return err
	}
	r.atEnd(func(context.Context) error { return conn.Close() })
	r.admin, _ = bareClient(h)
	bare, simple := bareClient(h)
	client, count := bareClient(h)
	c, err := rivals.NewCoordinator(client, rivals.ClusterOptions(h.Order))
	if err != nil {
		return err
	}
	r.atEnd(c.Close)
	others, own, err := othersKeys(ctx, c, t.Calls)
	if err != nil {
		return err
	}
	keys, prefix := makeKeys("order", t.Calls), h.Namespace+":"
	r.blocks, r.nodes, r.settle = t.Blocks, []*coord.Coordinator{c}, settle
	add := func(l *lane, keys []string, call func(ctx context.Context, key string) error) *lane {
		l.calls, l.run = len(keys), l.patient(keys, call)
		l.Served = l.Redis || l.process != 0 && harness.ProcessCPU([]int{l.process}) > 0
		if l.counters == nil {
			l.counters = []*harness.Counter{nil}
		}
		return r.add(l)
	}
	// Floors: no distributed locks.
	floor := func(name string, batch, process int, call func(ctx context.Context, key string) error) {
		add(&lane{laneResult: laneResult{Name: name}, batch: batch, process: process}, keys, call)
	}
	var mu sync.Mutex
	floor(laneMutex, laneBatch, 0, func(context.Context, string) error {
		mu.Lock()
		mu.Unlock() //nolint:staticcheck // the pair is what is measured
		return nil
	})
	var keyed rivals.KeyedMutex
	floor(laneKeyed, laneBatch, 0, func(_ context.Context, key string) error {
		keyed.Lock(key)
		keyed.Unlock(key)
		return nil
	})
	floor(laneTCP, 1, t.Owner, func(context.Context, string) error { return rivals.RoundTrip(conn) })
	atRedis := func(name string, call func(ctx context.Context, key string) error) *lane {
		return add(&lane{laneResult: laneResult{Name: name, Redis: true}, counters: []*harness.Counter{simple}}, keys, call)
	}
	atRedis(lanePing, func(ctx context.Context, _ string) error { return bare.Ping(ctx).Err() })
	atRedis(laneSet, func(ctx context.Context, key string) error {
		return rivals.SetOnly(ctx, bare, prefix+key)
	}).around = func(f func() error) error {
		err := f()
		for _, key := range keys {
			err = errors.Join(err, r.admin.Unlink(ctx, prefix+key).Err())
		}
		return err
	}
	atRedis(lanePair, func(ctx context.Context, key string) error { return rivals.SetPair(ctx, bare, prefix+key) })
	// The locks of a cluster of two, and those of others.
	cluster := func(name string, path coord.Path, keys []string, batch, process int) {
		add(&lane{laneResult: laneResult{Name: name, Redis: true}, path: path, counters: []*harness.Counter{count}, batch: batch, process: process}, keys,
			func(ctx context.Context, key string) error { return pair(ctx, c, key) })
	}
	cluster(laneOwn, coord.PathOwn, own, laneBatch, 0)
	cluster(laneForwarded, coord.PathForwarded, others, 1, t.Owner)
	for _, x := range append([]latencyRival{{Variant: rivals.PlainVariant}}, t.Rivals...) {
		found := laneResult{Name: laneAlone, Redis: true}
		v, err := variantOf(h, x.Variant, x.Server, 1)
		if err != nil {
			return err
		}
		if x.Variant != rivals.PlainVariant {
			found = laneResult{Name: x.Variant, Title: v.Title(), Rival: true, Redis: x.Process == 0}
		}
		add(&lane{laneResult: found, process: x.Process, counters: []*harness.Counter{v.count}}, keys,
			func(ctx context.Context, key string) error { return v.Section(ctx, key, func(uint64) {}) })
	}
	return nil
}

// patient is a run that gives a call up after some time.
func (l *lane) patient(keys []string, call func(ctx context.Context, key string) error) runner {
	limited, cancel, timer := context.Context(nil), context.CancelFunc(nil), (*time.Timer)(nil)
	return func(ctx context.Context, i, n int) (span, error) {
		if limited == nil {
			limited, cancel = context.WithCancel(ctx)
			timer = time.AfterFunc(stuckAfter, cancel)
		}
		timer.Reset(stuckAfter)
		defer timer.Stop()
		begin := time.Now()
		for j := range n {
			err := call(limited, keys[(i+j)%len(keys)])
			if err != nil && limited.Err() != nil && ctx.Err() == nil {
				l.Stuck++
				limited = nil
				break
			}
			if err != nil {
				return span{}, err
			}
		}
		return span{n, time.Since(begin)}, nil
	}
}

// measureLatency lets one caller lock keys that no other one wants, in all ways.
func measureLatency(ctx context.Context, b *Run) (report.Result, error) {
	_, its, _ := b.TwoCores()
	list := rivals.Chosen("latency", b.Rivals)
	servers, err := b.startServers(ctx, its, list)
	if err != nil {
		return report.Result{}, err
	}
	ws, pinned, err := b.StartPinned(ctx, "latency", "the owner and the rivals' servers")
	if err != nil {
		return report.Result{}, err
	}
	o, err := ownerTasks.Do(ws[1], struct{}{})
	if err != nil {
		return report.Result{}, err
	}
	t := latencyTask{latencySizes: b.Sizes.latency, Echo: o.Echo, Owner: ws[1].Cmd.Process.Pid}
	for _, v := range list {
		if !servers.Has(v) {
			continue
		}
		l := latencyRival{Variant: v.Name, Server: servers.Conn(v)}
		if v.Server != nil {
			l.Process = servers.Of(v.Server).PID
		}
		t.Rivals = append(t.Rivals, l)
	}
	r, err := latencyTasks.Do(ws[0], t)
	if err != nil {
		return report.Result{}, err
	}
	out := latencyResults(b.Sizes.latency, r, list)
	describeServers(&out, servers, list)
	out.Notes = append([]string{pinned}, out.Notes...)
	return out, nil
}

func latencyResults(s latencySizes, r *lanesResult, list []rivals.Variant) report.Result {
	out := report.Result{
		Title: fmt.Sprintf("LATENCY: one caller, %d keys in turn that nobody else wants, each locked and unlocked; %d blocks, by turns",
			s.Calls, s.Blocks),
		Table: [][]string{{"microseconds", "p50", "(min..max)", "p99", "p99.9", "max", "p50 / TCP's", "/ best rival's", "locks/s",
			"commands", "bytes sent", "received", "CPU s per million", "of the server", "allocations"}},
	}
	best := &laneResult{Name: "rival"}
	for _, l := range r.Lanes {
		if l.Rival && (len(best.P50) == 0 || stats.Median(l.P50) < stats.Median(best.P50)) {
			best = l
		}
	}
	tcp, own, forwarded := r.lane(laneTCP), r.lane(laneOwn), r.lane(laneForwarded)
	var all []report.Contestant
	var given []string
	stuck := 0
	for _, l := range r.Lanes {
		p50, t, kind := stats.SpreadOf(l.P50), l.tally(), chart.Floor
		if l.Rival || strings.HasPrefix(l.Name, "Holdfast") {
			kind = report.KindOf(l.Name)
		}
		per := func(total float64, known bool) string {
			if !known {
				return "-"
			}
			return stats.Number(t.Per(total))
		}
		out.Table = append(out.Table, []string{
			l.title(), stats.Micros(p50.Median), stats.Micros(p50.Least) + ".." + stats.Micros(p50.Most),
			stats.Micros(l.All.P99), stats.Micros(l.All.P999), stats.Micros(l.All.Max),
			stats.Number(l.times(tcp)), stats.Number(l.times(best)), stats.Number(stats.Ratio(float64(t.All.Sections), t.Took.Seconds())),
			per(float64(t.All.Commands), l.Redis), per(float64(t.All.Sent), t.All.Sent > 0), per(float64(t.All.Received), t.All.Received > 0),
			// Microseconds per call are seconds per million of them.
			per(t.All.CPU.Seconds()*1e6, true), per(t.Serving.Seconds()*1e6, l.Served), per(float64(t.All.Allocs), true),
		})
		out.Rungs = append(out.Rungs, report.Bar(l.Name, kind, l.P50))
		all = append(all, report.Contestant{Name: l.Name, Kind: kind, Tally: t})
		if !l.Rival {
			stuck += l.Stuck
		}
		if l.Stuck > 0 {
			given = append(given, fmt.Sprintf("%s: %d calls had not returned after %v, and were given up", l.Name, l.Stuck, stuckAfter))
		}
	}
	// Lanes without a network are compared with the mutex, and all others with a round trip.
	memory := func(c report.Contestant) bool { return slices.Contains(inMemory, c.Name) }
	out.CompareTo(laneMutex, slices.DeleteFunc(slices.Clone(all), func(c report.Contestant) bool { return !memory(c) }), all)
	out.CompareTo(laneTCP, slices.DeleteFunc(slices.Clone(all), memory), all)
	ours := own.tally().All
	out.Notes = []string{
		"p50: of each block, median of the blocks; p99, p99.9 and max: of all calls; ratios: of the p50 in each block, median of the blocks",
		fmt.Sprintf("what takes less than a microsecond is timed %d calls at a time: its p99, p99.9 and max are of means of so many", laneBatch),
		"locks/s, commands, bytes, CPU, allocations: of all calls, with what they leave to be done in the 30 ms after each block",
		"commands: to Redis, a script being one; bytes: on the caller's connections to servers of locks, not on those between nodes",
		"CPU: of the caller's whole process, all goroutines; of the server: redis-server's (INFO), the owner's, or that of all processes",
		"of the rival's server, by the kernel's count of its threads",
		fmt.Sprintf("Holdfast's locks by path: own %s, forwarded %s, others %s; %s commands of its cluster's node in the blocks of its own keys",
			figures.Thousands(r.By["own"]), figures.Thousands(r.By["forwarded"]), figures.Thousands(r.By["other"]), figures.Thousands(ours.Commands)),
	}
	for _, v := range list {
		out.Notes = append(out.Notes, v.Title()+": "+v.How)
	}
	out.Notes = append(out.Notes, given...)
	out.Claims = []report.Claim{
		report.AtLeast(latencyOwn, best.times(own), "median Lock and Unlock of an own key, times faster than "+best.Name),
		report.AtMost(latencyForward, forwarded.times(best), "median of another node's key, times that of "+best.Name),
		report.AtMost(latencyAlone, r.lane(laneAlone).times(r.lane(lanePair)), "median without a cluster, times SET NX PX and EVALSHA"),
		report.AtMost(ownMutex*2, own.times(r.lane(laneMutex)), "median of an own key, times a pair of sync.Mutex's"),
		report.AtMost(latencyCalls, stats.Ratio(float64(ours.Commands), float64(ours.Sections)), "Redis commands per lock of an own key"),
		report.AtMost(0, float64(stuck), "calls that had to be given up, of Holdfast and the floors"),
		report.AtMost(0, float64(r.By["other"]), "locks of the cluster that took another path than they should"),
	}
	return out
}
