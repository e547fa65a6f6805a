package recipes_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/coord"
)

// A schema migration at the start: every process of a deployment calls this before it serves. The
// first one migrates, and the others wait for that. For goose and golang-migrate there are
// adapters: docs/adapters.md.
func migrateSchema(ctx context.Context, locks *coord.Coordinator, version func() (int, error), steps []func(context.Context) error) error {
	return locks.Do(ctx, "migrate/orders", func(ctx context.Context, _ coord.Lock) error {
		at, err := version()
		if err != nil {
			return err
		}
		for i := at; i < len(steps); i++ {
			if ctx.Err() != nil { // the lock was lost: another process may migrate now
				return context.Cause(ctx)
			}
			if err := steps[i](ctx); err != nil { // in a transaction, with the new version
				return fmt.Errorf("step %d: %w", i+1, err)
			}
		}
		return nil
	})
}

func Example_schemaMigration() {
	all, stop := processes(3)
	defer stop()
	ctx := context.Background()
	schema := 1 // the first step was made by an earlier deployment
	broken := true
	steps := []func(context.Context) error{
		func(context.Context) error { fmt.Println("never"); return nil },
		func(context.Context) error { schema = 2; fmt.Println("step 2"); return nil },
		func(context.Context) error {
			if broken {
				broken = false
				return errors.New("the database is busy")
			}
			schema = 3
			fmt.Println("step 3")
			return nil
		},
	}
	fmt.Println(migrateSchema(ctx, all[0], func() (int, error) { return schema, nil }, steps))

	var work sync.WaitGroup
	for _, locks := range all { // a new deployment, whose processes start together
		work.Go(func() {
			if err := migrateSchema(ctx, locks, func() (int, error) { return schema, nil }, steps); err != nil {
				fmt.Println(err)
			}
		})
	}
	work.Wait()
	fmt.Println("version", schema)
	// Output:
	// step 2
	// step 3: the database is busy
	// step 3
	// version 3
}
