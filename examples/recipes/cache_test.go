package recipes_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// A cache without a stampede: a price list expires, and 150 requests in three processes want it.
// One of them computes it, the others wait for that, and all keep it for a minute. A change drops
// it in all processes.
func Example_cacheStampede() {
	all, stop := processes(3)
	defer stop()
	ctx := context.Background()
	var loads atomic.Int32
	load := func(context.Context, coord.Fence) (string, error) {
		// The query that the database does not stand 150 times.
		return fmt.Sprint("prices, version ", loads.Add(1)), nil
	}
	opts := &coord.ShareOptions[string]{TTL: time.Minute}
	requests := func() map[string]int {
		var mu sync.Mutex // protects answers
		answers := map[string]int{}
		var work sync.WaitGroup
		for i := range 150 {
			work.Go(func() {
				prices, err := coord.Share(ctx, all[i%3], "prices", opts, load)
				if err != nil {
					fmt.Println(err)
				}
				mu.Lock()
				defer mu.Unlock()
				answers[prices]++
			})
		}
		work.Wait()
		return answers
	}

	fmt.Println(requests())
	fmt.Println(requests())
	if err := coord.Unshare(ctx, all[0], "prices", nil); err != nil { // after the write
		fmt.Println(err)
	}
	fmt.Println(requests())
	// Output:
	// map[prices, version 1:150]
	// map[prices, version 1:150]
	// map[prices, version 2:150]
}
