package recipes_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/periodic"
)

// A cron singleton: three processes have the same job in their schedule, and each tick of it runs
// once. The job takes no time, so a lock per tick would run it three times.
func Example_cronSingleton() {
	all, stop := processes(3)
	defer stop()
	const ticks = 5
	var mu sync.Mutex // protects runs
	runs := map[time.Time]int{}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	var work sync.WaitGroup
	for _, locks := range all {
		work.Go(func() {
			// In a service: time.Hour, or the schedule of robfig/cron's parser for "0 3 * * *".
			err := periodic.Run(ctx, locks, "report", periodic.Every(50*time.Millisecond), nil, func(_ context.Context, t periodic.Tick) error {
				mu.Lock()
				defer mu.Unlock()
				if runs[t.Due]++; len(runs) == ticks {
					cancel() // in a service: SIGTERM
				}
				return nil
			})
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	work.Wait()
	once := true
	for _, n := range runs {
		once = once && n == 1
	}
	fmt.Println("ticks:", len(runs) >= ticks, "each ran once:", once)
	// Output:
	// ticks: true each ran once: true
}
