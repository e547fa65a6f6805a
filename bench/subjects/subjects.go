// Package subjects has the measurements. Those of one caller are lanes (newLanes). Each is
// described once, where the worker opens it: all else, blocks by turns, meters, rows and ratios, is
// the same for all. Where many contend they are ways (waysOf). Each way is a variant or more, and
// the workers run them in rounds (contest).
//
// To add a subject: its lanes or ways, a function that makes a table, notes and claims of the
// results, its sizes, and a line in All.
package subjects

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
)

// Run is one run of the command, with how much of each subject is measured.
type Run struct {
	*harness.Bench
	Sizes Sizes
}

// Subject is one of the measurements.
type Subject struct {
	Name, About string
	Measure     func(context.Context, *Run) (report.Result, error)
}

// Do measures the subject as a part of the run: see Part.
func (s Subject) Do(ctx context.Context, b *Run) (r report.Result, err error) {
	err = b.Part(func() (err error) {
		r, err = s.Measure(ctx, b)
		return err
	})
	return r, err
}

// startServers runs the servers of the variants until the end of the part.
func (b *Run) startServers(ctx context.Context, core int, list []rivals.Variant) (*rivals.Servers, error) {
	s, err := rivals.StartServers(ctx, core, list)
	if err == nil {
		b.AtEnd(func(bool) error { return s.Stop() })
		s.Tell(b.Bench)
	}
	return s, err
}

// All are the subjects in their order. The first three have no cluster.
var All = []Subject{
	{"hot", "many goroutines of several processes want one key", measureHot},
	{"cold", "one caller locks keys that no other one wants", measureCold},
	{"held", "one process holds very many locks", measureHeld},

	{"own", "one process, keys of its own partitions, against a mutex and a channel", measureOwn},
	{"shared", "many goroutines of several processes want one key, for two round trips to a store", measureShared},
	{"zipf", "the same with 1,000 keys of which some are wanted more", measureZipf},
	{"forward", "one process locks what the other one owns", measureForward},
	{"idle", "what processes that lock nothing ask of Redis", measureIdle},
	{"http", "what the middleware costs a request, against a bare handler and a ReverseProxy", measureHTTP},

	{"latency", "one caller locks keys that no other one wants, in all ways, beside what no lock can do without", measureLatency},
	{"modes", "read locks and permits, beside what a user would have elsewhere", measureModes},

	{"stalls", "what requests wait while processes are replaced or killed, or Redis is; nine minutes, half an hour with all rivals", measureStalls},
}

// Long lists the subjects that are only measured if -only names them.
var Long = []string{"stalls"}

// Sizes say how much is measured.
type Sizes struct {
	Hot, Shared, Zipf Crowd

	Cold    ColdSizes
	Held    HeldSizes
	own     ownSizes
	forward forwardSizes
	idle    idleSizes
	http    httpSizes
	latency latencySizes
	stalls  stallSizes
	modes   modesSizes
}

// describeServers adds which servers there are, and a line for each variant that is not run.
func describeServers(r *report.Result, s *rivals.Servers, list []rivals.Variant) {
	said := make(map[string]bool)
	for _, v := range list {
		if v.Server == nil {
			continue
		}
		absent := s.Why(v.Server)
		if absent != nil {
			row := make([]string, len(r.Table[0]))
			row[0], row[1] = v.Name, notRun
			r.Table = append(r.Table, row)
		}
		if said[v.Server.Name] {
			continue
		}
		said[v.Server.Name] = true
		if absent != nil {
			r.Notes = append(r.Notes, "not run: "+absent.Error())
		} else {
			r.Notes = append(r.Notes, s.Of(v.Server).Name+": started for this run, with its defaults")
		}
	}
}

// notRun is a table's cell for a variant without its server, instead of a figure.
const notRun = "not run"

var FullSizes = Sizes{
	Hot:  Crowd{Processes: 4, Goroutines: 16, Rounds: 6, Round: 2 * time.Second},
	Cold: ColdSizes{Blocks: 10, Calls: 1000},
	Held: HeldSizes{Locks: 100_000, Periods: 4},

	own:     ownSizes{Blocks: 15, Pairs: 200_000, HandOvers: 64_000, Calls: 200},
	Shared:  Crowd{Processes: 4, Goroutines: 16, Keys: 1, Rounds: 9, Round: time.Second},
	Zipf:    Crowd{Processes: 4, Goroutines: 64, Keys: 1000, Rounds: 7, Round: 1200 * time.Millisecond},
	forward: forwardSizes{Blocks: 12, Calls: 800, Callers: 64, Round: 400 * time.Millisecond},
	idle:    idleSizes{processes: 8, periods: 6},
	http:    httpSizes{Blocks: 12, Calls: 50_000, Posts: 1000},
	latency: latencySizes{Blocks: 10, Calls: 500},
	stalls: stallSizes{
		Rounds: 3, Processes: 4, Rate: 500, Keys: 1000, Hold: time.Millisecond, Limit: 20 * time.Second,
		Calm: 3 * time.Second, Every: 4 * time.Second, Outage: 5 * time.Second, After: 18 * time.Second,
	},
	modes: modesSizes{blocks: 10, block: 200 * time.Millisecond, ratios: 200},
}

var QuickSizes = Sizes{
	Hot:  Crowd{Processes: 4, Goroutines: 16, Rounds: 3, Round: 300 * time.Millisecond},
	Cold: ColdSizes{Blocks: 5, Calls: 250},
	Held: HeldSizes{Locks: 100_000, Periods: 1},

	own:     ownSizes{Blocks: 5, Pairs: 50_000, HandOvers: 32_000, Calls: 50},
	Shared:  Crowd{Processes: 4, Goroutines: 16, Keys: 1, Rounds: 3, Round: 300 * time.Millisecond},
	Zipf:    Crowd{Processes: 4, Goroutines: 64, Keys: 1000, Rounds: 2, Round: 400 * time.Millisecond},
	forward: forwardSizes{Blocks: 5, Calls: 200, Callers: 64, Round: 150 * time.Millisecond},
	idle:    idleSizes{processes: 8, periods: 2},
	http:    httpSizes{Blocks: 5, Calls: 20_000, Posts: 300},
	latency: latencySizes{Blocks: 4, Calls: 100},
	stalls: stallSizes{
		Rounds: 1, Processes: 3, Rate: 200, Keys: 1000, Hold: time.Millisecond, Limit: 20 * time.Second,
		Calm: time.Second, Every: 2 * time.Second, Outage: 5 * time.Second, After: 14 * time.Second,
	},
	modes: modesSizes{blocks: 5, block: 100 * time.Millisecond, ratios: 30},
}
