package main

import (
	"context"
	"errors"
	"fmt"
	"time"

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
func measureIdle(ctx context.Context, b *bench) (_ result, err error) {
	s := b.sizes.idle
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, ws, stop, err := b.startMany(ctx, "idle", s.processes, -1, -1)
	defer func() {
		if err != nil {
			cancel()
		}
		err = errors.Join(err, stop())
	}()
	if err != nil {
		return result{}, err
	}
	open := hotTask{Variant: clusterVariant}
	if _, err := doAll(ws, task{Hot: &open}); err != nil { // all at once, from nothing
		return result{}, err
	}
	took, err := settled(ctx, ws, open)
	if err != nil {
		return result{}, err
	}
	select {
	case <-time.After(idlePeriod): // what settling leaves to be done
	case <-ctx.Done():
		return result{}, ctx.Err()
	}
	b.progress.step(fmt.Sprintf("watched for %d periods", s.periods), 0, 0)
	open.Begin, open.Duration = time.Now(), time.Duration(s.periods)*idlePeriod
	before, err := serverCPU(ctx, b.admin)
	if err != nil {
		return result{}, err
	}
	answers, err := doAll(ws, task{Hot: &open})
	if err != nil {
		return result{}, err
	}
	server, err := serverCPU(ctx, b.admin)
	if err != nil {
		return result{}, err
	}
	server -= before
	r := result{
		title: fmt.Sprintf("IDLE: a cluster of %d processes that lock nothing, %s partitions, %d renewal periods of %v",
			s.processes, figures.Thousands(partitions), s.periods, idlePeriod),
		table: [][]string{{"node", "partitions", "round trips per period", "commands per period", "bytes per period", "allocations per period", "CPU, of one core"}},
	}
	var rates []float64
	owned := 0
	calls := make(map[string]int64)
	for i, a := range answers {
		n := float64(s.periods)
		rates = append(rates, float64(a.Hot.Trips)/n)
		owned += a.Hot.Owned
		for op, n := range a.Hot.Calls {
			calls[op] += n
		}
		r.table = append(r.table, []string{
			number(float64(i + 1)), number(float64(a.Hot.Owned)), number(float64(a.Hot.Trips) / n), number(float64(a.Hot.Commands) / n),
			number(float64(a.Hot.Bytes) / n), number(float64(a.Hot.Allocs) / n),
			number(100*a.Hot.CPU.Seconds()/open.Duration.Seconds()) + " %",
		})
	}
	spread := spreadOf(rates)
	r.notes = []string{
		fmt.Sprintf("settled, with all partitions owned, %.1f s after the last one had joined", took.Seconds()),
		"round trips: a pipeline is one; what a subscription sends is not seen; bytes: both ways, on connections to Redis, not on those between nodes",
		fmt.Sprintf("redis-server meanwhile: %s %% of one core, %s processes in all", number(100*server.Seconds()/open.Duration.Seconds()), number(float64(s.processes))),
		"of all nodes, by Stats: " + listed(calls),
	}
	r.claims = []claim{
		// A window of n periods has n or n+1 renewals of a node.
		atMost(idleTrips, sum(rates)*float64(s.periods)/float64(max(calls["renew"], 1)), "round trips to Redis per renewal, itself and a read, on average"),
		atMost(idleTrips+1/float64(s.periods), spread.most, "the same of the node with the most, give or take one"),
		atLeast(partitions, float64(owned), "partitions owned"),
		atMost(partitions, float64(owned), "the same: none twice"),
	}
	return r, nil
}
