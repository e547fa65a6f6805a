package coord_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// Two tasks lock two accounts one by one, in two orders. The second one is sent away, gives back
// its lock, and begins anew.
func ExampleDeadlockError() {
	ctx := context.Background()
	locks, err := coord.New(ctx, fallback.NewMemory(), &coord.Options{DeadlockAfter: 50 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close(ctx)

	var met sync.WaitGroup // until each task has its first lock
	met.Add(2)
	transfer := func(from, to string) error {
		return locks.Do(ctx, from, func(ctx context.Context, _ coord.Lock) error {
			met.Done()
			met.Wait()
			return locks.Do(ctx, to, func(context.Context, coord.Lock) error { return nil })
		})
	}
	first := make(chan error)
	go func() { first <- transfer("account 1", "account 2") }()
	err = transfer("account 2", "account 1")
	other := <-first
	if d, ok := errors.AsType[*coord.DeadlockError](cmp.Or(err, other)); ok {
		fmt.Println("callers in the circle:", len(d.Cycle))
		fmt.Println("the other one went on:", (err == nil) != (other == nil))
	}

	// Output:
	// callers in the circle: 2
	// the other one went on: true
}

// A task that does not hand on the contexts of its locks has a context that carries them all.
func ExampleWithLocker() {
	ctx := context.Background()
	locks, err := coord.New(ctx, fallback.NewMemory(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close(ctx)

	task := coord.WithLocker(ctx)
	l, err := locks.Lock(task, "account 1")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Unlock()
	_, err = locks.Lock(task, "account 1")
	fmt.Println(errors.Is(err, coord.ErrHeld))

	// Output: true
}
