package singleflight_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/singleflight"
)

func ExampleGroup_Do() {
	var g singleflight.Group[string, int]
	load := func(ctx context.Context) (int, error) { return len("holdfast"), nil }

	v, shared, err := g.Do(context.Background(), "holdfast", load)
	fmt.Println(v, shared, err)
	// Output: 8 false <nil>
}

// A caller whose context ends leaves; the others get the result nevertheless.
func ExampleGroup_Do_leave() {
	var g singleflight.Group[string, string]
	finish := make(chan struct{})
	load := func(ctx context.Context) (string, error) {
		select {
		case <-finish:
			return "result", nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}

	patient := g.Join(context.Background(), "key", load)
	ctx, cancel := context.WithCancelCause(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _, err := g.Do(ctx, "key", load)
		fmt.Println("hasty:", err)
	})
	cancel(errors.New("client went away"))
	wg.Wait()

	close(finish)
	v, err := patient.Result()
	fmt.Println("patient:", v, err)
	// Output:
	// hasty: context canceled: client went away
	// patient: result <nil>
}

// Join is for a caller that waits for more than one thing.
func ExampleGroup_Join() {
	var g singleflight.Group[string, string]
	stop := make(chan struct{})
	close(stop)

	m := g.Join(context.Background(), "key", func(ctx context.Context) (string, error) {
		<-ctx.Done() // the last member to leave cancels it
		return "", context.Cause(ctx)
	})
	defer m.Leave()
	select {
	case <-m.Done():
		fmt.Println(m.Result())
	case <-stop:
		m.Leave()
		fmt.Println("stopped, flights:", g.Len())
	}
	_, err := m.Result()
	fmt.Println(err)
	// Output:
	// stopped, flights: 0
	// singleflight: all members left
}
