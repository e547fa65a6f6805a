package periodic_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/periodic"
)

// Once every 10 ms in all processes together.
func ExampleRun() {
	ctx, cancel := context.WithCancel(context.Background())
	locks, err := coord.New(ctx, fallback.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	runs := 0
	err = periodic.Run(ctx, locks, "cleanup", periodic.Every(10*time.Millisecond), nil, func(ctx context.Context, t periodic.Tick) error {
		if runs++; runs == 3 {
			cancel()
		}
		return nil
	})
	fmt.Println(runs, err)
	fmt.Println(locks.Close(context.Background()))
	// Output:
	// 3 <nil>
	// <nil>
}
