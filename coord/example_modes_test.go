package coord_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-go/holdfast/coord"
)

// Two callers read at the same time, in this process or in others.
func ExampleCoordinator_RLock() {
	c := newCoordinator()
	defer c.Close(context.Background())

	first, err := c.RLock(context.Background(), "prices")
	if err != nil {
		log.Print(err)
		return
	}
	defer first.Unlock()
	second, err := c.RLock(context.Background(), "prices")
	if err != nil {
		log.Print(err)
		return
	}
	defer second.Unlock()
	_, err = c.TryLock(context.Background(), "prices") // to write
	fmt.Println(errors.Is(err, coord.ErrLocked))
	// Output: true
}

// A page shows the parts without a writer at the moment, and leaves out the rest. Readers are let
// in together.
func ExampleCoordinator_TryRLock() {
	c := newCoordinator()
	defer c.Close(context.Background())

	writer, err := c.Lock(context.Background(), "stock")
	if err != nil {
		log.Print(err)
		return
	}
	defer writer.Unlock()
	for _, part := range []string{"prices", "stock", "prices"} {
		l, err := c.TryRLock(context.Background(), part)
		if errors.Is(err, coord.ErrLocked) {
			fmt.Println(part, "is being written")
			continue
		}
		if err != nil {
			log.Print(err)
			return
		}
		defer l.Unlock()
		fmt.Println(part, "is read")
	}
	// Output:
	// prices is read
	// stock is being written
	// prices is read
}

// A job takes as many permits as it has parts that run at the same time.
func ExampleSemaphore_Acquire() {
	c := newCoordinator()
	defer c.Close(context.Background())

	renderers := c.Semaphore("renderers", 8) // in all processes together
	p, err := renderers.Acquire(context.Background(), 6)
	if err != nil {
		log.Print(err)
		return
	}
	_, err = renderers.TryAcquire(context.Background(), 3)
	fmt.Println(p.N(), errors.Is(err, coord.ErrLocked), p.Context().Err())
	fmt.Println(p.Release())
	// Output:
	// 6 true <nil>
	// <nil>
}

// A server turns away uploads that it cannot begin at once.
func ExampleSemaphore_TryAcquire() {
	c := newCoordinator()
	defer c.Close(context.Background())

	uploads := c.Semaphore("uploads", 2)
	for i := range 3 {
		p, err := uploads.TryAcquire(context.Background(), 1)
		if errors.Is(err, coord.ErrLocked) {
			fmt.Println("upload", i, "has to come again")
			continue
		}
		if err != nil {
			log.Print(err)
			return
		}
		defer p.Release()
		fmt.Println("upload", i, "begins")
	}
	// Output:
	// upload 0 begins
	// upload 1 begins
	// upload 2 has to come again
}

func ExampleSemaphore_Do() {
	c := newCoordinator()
	defer c.Close(context.Background())

	supplier := c.Semaphore("supplier", 2) // which takes two requests at a time
	err := supplier.Do(context.Background(), 1, func(ctx context.Context) error {
		fmt.Println("asking the supplier", ctx.Err()) // ctx ends if the permit is lost
		return nil
	})
	fmt.Println(err)
	// Output:
	// asking the supplier <nil>
	// <nil>
}

// A transfer locks both accounts, in whatever order its caller names them. Each lock has a token.
func ExampleCoordinator_LockAll() {
	c := newCoordinator()
	defer c.Close(context.Background())

	locks, err := c.LockAll(context.Background(), "account/9", "account/3")
	if err != nil {
		log.Print(err) // and none is locked
		return
	}
	defer locks.Unlock()
	fmt.Println(len(locks), locks.Of("account/3").Fence() > 0, locks.Of("account/9").Fence() > 0)
	// Output: 2 true true
}

// An audit that finds one of its accounts in use locks none of them.
func ExampleCoordinator_TryLockAll() {
	c := newCoordinator()
	defer c.Close(context.Background())

	transfer, err := c.Lock(context.Background(), "account/9")
	if err != nil {
		log.Print(err)
		return
	}
	_, err = c.TryLockAll(context.Background(), "account/3", "account/9")
	fmt.Println(errors.Is(err, coord.ErrLocked))
	fmt.Println(transfer.Unlock())
	locks, err := c.TryLockAll(context.Background(), "account/9", "account/3", "account/9") // in any order, twice or once
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println(len(locks), locks.Unlock())
	// Output:
	// true
	// <nil>
	// 2 <nil>
}

// The stock is written, and the catalogue only read: others may read it at the same time.
func ExampleCoordinator_LockClaims() {
	c := newCoordinator()
	defer c.Close(context.Background())

	locks, err := c.LockClaims(context.Background(), coord.Claim{Key: "stock/7"}, coord.Claim{Key: "catalogue", Read: true})
	if err != nil {
		log.Print(err)
		return
	}
	defer locks.Unlock()
	other, err := c.TryRLock(context.Background(), "catalogue")
	fmt.Println(locks.Of("stock/7").Key(), locks.ReadOf("catalogue").Key(), other.Key(), err)
	_ = other.Unlock()
	// Output: stock/7 catalogue catalogue <nil>
}

// A lock that ends by itself, for a caller that must not keep others waiting should it hang.
func ExampleCoordinator_LockFor() {
	c := newCoordinator()
	defer c.Close(context.Background())

	l, err := c.LockFor(context.Background(), "device/12", 10*time.Millisecond)
	if err != nil {
		log.Print(err)
		return
	}
	<-l.Context().Done()
	loss, _ := errors.AsType[*coord.LossError](context.Cause(l.Context()))
	fmt.Println(loss.Cause, errors.Is(l.Unlock(), coord.ErrLost))
	// Output: time over true
}

// A job of many steps gives way between two of them when another caller waits.
func ExampleLock_Wanted() {
	c := newCoordinator()
	defer c.Close(context.Background())

	l, err := c.Lock(context.Background(), "index")
	if err != nil {
		log.Print(err)
		return
	}
	other := make(chan error)
	go func() {
		other <- c.Do(context.Background(), "index", func(context.Context, coord.Lock) error { return nil })
	}()
	for step := 1; ; step++ {
		// one step of the work
		select {
		case <-l.Wanted():
			fmt.Println(l.Unlock()) // and lock again for the next steps
			fmt.Println(<-other)
			return
		default:
			time.Sleep(time.Millisecond)
		}
	}
	// Output:
	// <nil>
	// <nil>
}
