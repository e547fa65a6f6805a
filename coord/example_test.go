package coord_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
)

// One coordinator per process, for as long as it runs.
func ExampleNew() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	c, err := coord.New(context.Background(), redisarbiter.New(client, nil), &coord.Options{Namespace: "shop"})
	if err != nil {
		log.Fatal(err) // says which setting is wrong
	}
	defer c.Close(context.Background()) // waits for the locks in use, gives everything back
}

// newCoordinator is the examples' coordinator: without a server.
func newCoordinator() *coord.Coordinator {
	c, err := coord.New(context.Background(), fallback.NewMemory(), nil)
	if err != nil {
		log.Fatal(err)
	}
	return c
}

func ExampleCoordinator_Do() {
	c := newCoordinator()
	defer c.Close(context.Background())

	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := c.Do(ctx, "order/42", func(ctx context.Context, l coord.Lock) error {
		// ctx ends if the lock is lost. l.Fence() goes into the UPDATE.
		fmt.Println("locked", l.Key())
		return nil
	})
	fmt.Println(err)
	// Output:
	// locked order/42
	// <nil>
}

func ExampleCoordinator_Lock() {
	c := newCoordinator()
	defer c.Close(context.Background())

	l, err := c.Lock(context.Background(), "sku/7")
	if err != nil {
		log.Print(err)
		return
	}
	defer l.Unlock()
	// The first statement of the transaction, before the stock is read; no row: a later holder was
	// here. UPDATE stock SET fence = $1 WHERE sku = $2 AND COALESCE(fence, 0) <= $1 RETURNING units
	fmt.Println(l.Fence() > 0, l.Context().Err())
	// Output: true <nil>
}

func ExampleCoordinator_TryLock() {
	c := newCoordinator()
	defer c.Close(context.Background())

	l, _ := c.TryLock(context.Background(), "report/daily")
	_, err := c.TryLock(context.Background(), "report/daily")
	fmt.Println(errors.Is(err, coord.ErrLocked))
	fmt.Println(l.Unlock(), l.Unlock())
	// Output:
	// true
	// <nil> coord: already unlocked
}

// Several keys at once, in any order: no two callers wait for each other.
func ExampleCoordinator_DoAll() {
	c := newCoordinator()
	defer c.Close(context.Background())

	keys := []string{"seat/17B", "seat/17A", "seat/17B"}
	err := c.DoAll(context.Background(), keys, func(ctx context.Context, locks coord.Locks) error {
		fmt.Println(len(locks), locks.Of("seat/17A").Fence() > 0, ctx.Err())
		return nil
	})
	fmt.Println(err)
	// Output:
	// 2 true <nil>
	// <nil>
}

// A function that locks a key that its caller may have locked already.
func ExampleCoordinator_DoNested() {
	c := newCoordinator()
	defer c.Close(context.Background())

	reserve := func(ctx context.Context) error {
		return c.DoNested(ctx, "order/8123", func(context.Context, coord.Lock) error {
			fmt.Println("reserved")
			return nil
		})
	}
	fmt.Println(reserve(context.Background()))
	err := c.Do(context.Background(), "order/8123", func(ctx context.Context, _ coord.Lock) error { return reserve(ctx) })
	fmt.Println(err)
	// Output:
	// reserved
	// <nil>
	// reserved
	// <nil>
}

// A lock that is lost ends its context, with the reason as the cause.
func ExampleLock_Context() {
	c := newCoordinator()
	l, err := c.Lock(context.Background(), "account/3")
	if err != nil {
		log.Fatal(err)
	}
	ctx := l.Context()

	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.Close(now) // without waiting for the lock

	<-ctx.Done()
	loss, _ := errors.AsType[*coord.LossError](context.Cause(ctx))
	fmt.Println(loss.Cause)
	fmt.Println(errors.Is(l.Unlock(), coord.ErrLost))
	// Output:
	// coordinator closed
	// true
}

func ExampleCoordinator_Stats() {
	c, err := coord.New(context.Background(), fallback.NewMemory(), &coord.Options{
		Handoff: coord.Handoff{Linger: time.Minute}, // an unused key stays here for so long; by default it is given back after 5 ms
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(context.Background())
	for range 3 {
		_ = c.Do(context.Background(), "k", func(context.Context, coord.Lock) error { return nil })
	}
	s := c.Stats()
	fmt.Println(s.Granted[coord.PathArbiter], s.Granted[coord.PathTurn], s.Calls[coord.OpLock])
	// Output: 1 2 1
}

func ExampleTrace() {
	c, err := coord.New(context.Background(), fallback.NewMemory(), &coord.Options{Trace: &coord.Trace{
		Granted: func(_ context.Context, g coord.GrantInfo) { fmt.Println("granted", g.Key, "by", g.Path) },
		Lost:    func(l coord.LossError) { fmt.Println("lost", l.Key, "because", l.Cause) },
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(context.Background())
	_ = c.Do(context.Background(), "k", func(context.Context, coord.Lock) error { return nil })
	// Output: granted k by arbiter
}

// Readers of all processes are let in together, and a writer waits for them.
func ExampleCoordinator_RDo() {
	c := newCoordinator()
	defer c.Close(context.Background())

	err := c.RDo(context.Background(), "catalogue", func(ctx context.Context, l coord.ReadLock) error {
		fmt.Println("reading", l.Key())
		return nil
	})
	fmt.Println(err)
	// Output:
	// reading catalogue
	// <nil>
}

// A caller that has written goes on reading, and no other writer comes in between.
func ExampleLock_Downgrade() {
	c := newCoordinator()
	defer c.Close(context.Background())

	l, err := c.Lock(context.Background(), "catalogue")
	if err != nil {
		log.Print(err)
		return
	}
	defer l.Unlock() // ErrUnlocked if it was made one for reading
	// write
	r, err := l.Downgrade(context.Background())
	if err != nil {
		log.Print(err)
		return
	}
	defer r.Unlock()
	fmt.Println(r.Key(), r.Fence() > l.Fence())
	// Output: catalogue true
}

func ExampleCoordinator_Semaphore() {
	c := newCoordinator()
	defer c.Close(context.Background())

	reports := c.Semaphore("reports", 3) // at most 3 at a time, in all processes
	err := reports.Do(context.Background(), 1, func(ctx context.Context) error {
		fmt.Println("computing a report")
		return nil
	})
	fmt.Println(err)
	_, err = c.Semaphore("reports", 3).TryAcquire(context.Background(), 4)
	fmt.Println(err)
	// Output:
	// computing a report
	// <nil>
	// coord: 4 permits of key "reports"; there are 3
}

// An order reads the prices, and writes the stock of two articles.
func ExampleCoordinator_DoClaims() {
	c := newCoordinator()
	defer c.Close(context.Background())

	claims := append(coord.ForWriting("stock/7", "stock/8"), coord.ForReading("prices")...)
	err := c.DoClaims(context.Background(), claims, func(ctx context.Context, locks coord.Claimed) error {
		fmt.Println(locks.Of("stock/7").Key(), locks.ReadOf("prices").Key())
		return nil
	})
	fmt.Println(err)
	// Output:
	// stock/7 prices
	// <nil>
}

// A function that reads may be called by one that has the key locked, and by others.
func ExampleCoordinator_RDoNested() {
	c := newCoordinator()
	defer c.Close(context.Background())

	total := func(ctx context.Context) error {
		return c.RDoNested(ctx, "cart/5", func(context.Context, coord.Fence) error {
			fmt.Println("adding up")
			return nil
		})
	}
	fmt.Println(total(context.Background()))
	fmt.Println(c.Do(context.Background(), "cart/5", func(ctx context.Context, _ coord.Lock) error { return total(ctx) }))
	// Output:
	// adding up
	// <nil>
	// adding up
	// <nil>
}
