// Package subjects has the measurements. Each is a function that says what its workers do, in
// rounds by turns, and makes a table, notes and claims of what they answer.
//
// To add one: a task (harness.NewTask) in a file of its own, what measures it in another, its sizes
// in sizes.go, and a line in All.
package subjects

import (
	"context"
	"fmt"

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

// Do measures the subject, and ends what that has begun.
func (s Subject) Do(ctx context.Context, b *Run) (r report.Result, err error) {
	err = b.Part(func() (err error) {
		r, err = s.Measure(ctx, b)
		return err
	})
	return r, err
}

// startServers starts what the variants need until the end of the part.
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
	{"rows", "many goroutines of several processes read and write rows of a database, of which nothing may be sold twice", measureRows},
	{"modes", "read locks and permits, beside what a user would have elsewhere", measureModes},

	{"growth", "what a lock costs over 1 to 1,000,000 keys, 1 to 1,024 goroutines, 1 to 8 processes, and any rate; five minutes", measureGrowth},
	{"stalls", "what requests wait while processes are replaced or killed, or Redis is; nine minutes, half an hour with all rivals", measureStalls},
}

// Long lists the subjects that are only measured if -only names them.
var Long = []string{"growth", "stalls"}

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
	growth  growthSizes
	stalls  stallSizes
	rows    rowsSizes
	modes   modesSizes
}

// byTurns lets all that is compared run once in each round, in an order that changes. Round 0 is not counted: connections are made
// in it, scripts loaded, statements prepared.
func byTurns[T any](ctx context.Context, b *Run, rounds int, all []T, name func(T) string, run func(t T, round int) error) error {
	for round := range rounds + 1 {
		for i := range all {
			t := all[(i+round)%len(all)]
			b.Progress.Step(name(t), round*len(all)+i, (rounds+1)*len(all))
			b.Settle(ctx)
			if err := run(t, round); err != nil {
				return fmt.Errorf("%s: %w", name(t), err)
			}
		}
	}
	return nil
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

// notRun is what a table says of a variant without its server, instead of a figure.
const notRun = "not run"
