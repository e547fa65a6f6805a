package subjects

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/rivals"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// idleSizes: processes of a cluster that lock nothing, for some renewal periods.
type idleSizes struct {
	processes int
	periods   int
}

const (
	idleTrips  = 2                       // round trips to Redis per node and renewal period, at most
	idlePeriod = 2500 * time.Millisecond // RenewEvery, by default
)

// measureIdle counts what an idle cluster asks of Redis.
func measureIdle(ctx context.Context, b *Run) (_ report.Result, err error) {
	s := b.Sizes.idle
	_, ws, stop, err := b.StartMany(ctx, "idle", s.processes, -1, -1)
	defer func() { err = errors.Join(err, stop(err != nil)) }()
	if err != nil {
		return report.Result{}, err
	}
	open := hotTask{Variant: rivals.ClusterVariant}
	if _, err := hotTasks.All(ws, open); err != nil { // all at once, from nothing
		return report.Result{}, err
	}
	took, err := settled(ctx, ws, open)
	if err != nil {
		return report.Result{}, err
	}
	select {
	case <-time.After(idlePeriod): // what settling leaves to be done
	case <-ctx.Done():
		return report.Result{}, ctx.Err()
	}
	b.Progress.Step(fmt.Sprintf("watched for %d periods", s.periods), 0, 0)
	open.Begin, open.Duration = time.Now(), time.Duration(s.periods)*idlePeriod
	before, err := harness.ServerCPU(ctx, b.Admin)
	if err != nil {
		return report.Result{}, err
	}
	answers, err := hotTasks.All(ws, open)
	if err != nil {
		return report.Result{}, err
	}
	server, err := harness.ServerCPU(ctx, b.Admin)
	if err != nil {
		return report.Result{}, err
	}
	server -= before
	r := report.Result{
		Title: fmt.Sprintf("IDLE: a cluster of %d processes that lock nothing, %s partitions, %d renewal periods of %v",
			s.processes, figures.Thousands(partitions), s.periods, idlePeriod),
		Table: [][]string{{"node", "partitions", "round trips per period", "commands per period", "bytes per period", "allocations per period", "CPU, of one core"}},
	}
	var rates []float64
	owned := 0
	calls := make(map[string]int64)
	for i, a := range answers {
		n := float64(s.periods)
		rates = append(rates, float64(a.Trips)/n)
		owned += a.Owned
		for op, n := range a.Calls {
			calls[op] += n
		}
		r.Table = append(r.Table, []string{
			stats.Number(float64(i + 1)), stats.Number(float64(a.Owned)), stats.Number(float64(a.Trips) / n), stats.Number(float64(a.Commands) / n),
			stats.Number(float64(a.Bytes()) / n), stats.Number(float64(a.Allocs) / n),
			stats.Number(100*a.CPU.Seconds()/open.Duration.Seconds()) + " %",
		})
	}
	spread := stats.SpreadOf(rates)
	r.Notes = []string{
		fmt.Sprintf("settled, with all partitions owned, %.1f s after the last one had joined", took.Seconds()),
		"round trips: a pipeline is one; what a subscription sends is not seen; bytes: both ways, on connections to Redis, not on those between nodes",
		fmt.Sprintf("redis-server meanwhile: %s %% of one core, %s processes in all", stats.Number(100*server.Seconds()/open.Duration.Seconds()), stats.Number(float64(s.processes))),
		"of all nodes, by Stats: " + listed(calls),
	}
	r.Claims = []report.Claim{
		// A window of n periods has n or n+1 renewals of a node.
		report.AtMost(idleTrips, stats.Sum(rates)*float64(s.periods)/float64(max(calls["renew"], 1)), "round trips to Redis per renewal, itself and a read, on average"),
		report.AtMost(idleTrips+1/float64(s.periods), spread.Most, "the same of the node with the most, give or take one"),
		report.AtLeast(partitions, float64(owned), "partitions owned"),
		report.AtMost(partitions, float64(owned), "the same: none twice"),
	}
	return r, nil
}
