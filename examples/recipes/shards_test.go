package recipes_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/election"
)

// Sharded workers: twelve shards of a queue are divided among the processes that are there. One of
// three goes, and the others get its shards. No shard has two workers at any time.
func Example_shardedWorkers() {
	all, stop := processes(3)
	defer stop()
	const shards = 12
	var mu sync.Mutex // protects the variables below
	worker, changed := map[int]int{}, make(chan struct{}, 1000)
	overlaps := 0
	var work sync.WaitGroup
	sigterm := make([]context.CancelFunc, len(all))
	for process, locks := range all {
		e, err := election.New(locks, "queue", &election.Options{Pause: 20 * time.Millisecond})
		if err != nil {
			fmt.Println(err)
			return
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		sigterm[process] = cancel
		work.Go(func() {
			err := e.Assign(ctx, shards, func(ctx context.Context, s election.Shard) error {
				mu.Lock()
				if _, there := worker[s.Number]; there {
					overlaps++
				}
				worker[s.Number] = process
				mu.Unlock()
				changed <- struct{}{}
				<-ctx.Done() // in a service: consume the shard until ctx ends
				mu.Lock()
				delete(worker, s.Number)
				mu.Unlock()
				return nil
			})
			if err != nil {
				fmt.Println(err)
			}
		})
	}

	// share waits until all shards have workers, the same number in each process.
	share := func(processes int) {
		for range changed {
			mu.Lock()
			each := map[int]int{}
			for _, process := range worker {
				each[process]++
			}
			all := len(worker) == shards
			mu.Unlock()
			if all && len(each) == processes && each[0] == shards/processes && each[1] == shards/processes {
				fmt.Println("process 0 has", each[0], "shards, process 1", each[1], "and process 2", each[2])
				return
			}
		}
	}
	share(3)
	sigterm[2]()
	share(2)
	sigterm[0]()
	sigterm[1]()
	work.Wait()
	fmt.Println("overlaps:", overlaps)
	// Output:
	// process 0 has 4 shards, process 1 4 and process 2 4
	// process 0 has 6 shards, process 1 6 and process 2 0
	// overlaps: 0
}
