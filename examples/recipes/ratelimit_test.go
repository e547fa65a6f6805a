package recipes_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// A limiter lets at most burst calls begin in any time of length every, in all processes together:
// each call takes one of burst slots, and the slot is kept until the call has ended, and every
// after that: the partner's clock may count from any moment in between. So no more than burst calls
// run at the same time either. Where a process crashes, its slots are free once its locks are,
// after 3 to 10 s, whatever every is: with a longer one, that many calls more may begin then.
type limiter struct {
	locks *coord.Coordinator
	name  string
	burst int
	every time.Duration
	kept  sync.WaitGroup
}

// Do calls with a context that ends with ctx, and with the slot.
func (l *limiter) Do(ctx context.Context, call func(ctx context.Context) error) error {
	slot, err := l.locks.Lock(ctx, fmt.Sprint(l.name, "/", rand.IntN(l.burst))) // callers queue, in order of arrival
	if err != nil {
		return err
	}
	defer func() { // also if call panics
		l.kept.Go(func() { // the caller does not wait for it
			<-time.After(l.every)
			_ = slot.Unlock()
		})
	}()
	lost := slot.Context() // which ends with the slot alone
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(lost, func() { cancel(context.Cause(lost)) })()
	return call(ctx)
}

// Close waits until no slot is kept. The coordinator is closed after that.
func (l *limiter) Close() { l.kept.Wait() }

func Example_rateLimit() {
	all, stop := processes(3)
	defer stop()
	const every, burst = 50 * time.Millisecond, 2
	var mu sync.Mutex // protects began
	var began []time.Time
	var work sync.WaitGroup
	for _, locks := range all {
		partner := &limiter{locks: locks, name: "partner", burst: burst, every: every} // the partner permits 2 calls per 50 ms
		defer partner.Close()
		for range 4 {
			work.Go(func() {
				err := partner.Do(context.Background(), func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					began = append(began, time.Now())
					return nil
				})
				if err != nil {
					fmt.Println(err)
				}
			})
		}
	}
	work.Wait()
	slices.SortFunc(began, time.Time.Compare)
	exceeded := 0
	for i := burst; i < len(began); i++ {
		if began[i].Sub(began[i-burst]) < every {
			exceeded++
		}
	}
	fmt.Println(len(began), "calls, the limit was exceeded", exceeded, "times")
	// Output:
	// 12 calls, the limit was exceeded 0 times
}
