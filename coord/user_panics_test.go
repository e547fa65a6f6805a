package coord_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// brittle is a context of the user's that panics when it has been asked as often as left
// says, for a value or for Done: once.
type brittle struct {
	context.Context
	left *int
}

func (x brittle) ask() {
	if *x.left--; *x.left == 0 {
		panic("brittle")
	}
}

func (x brittle) Value(key any) any     { x.ask(); return x.Context.Value(key) }
func (x brittle) Done() <-chan struct{} { x.ask(); return x.Context.Done() }

// A caller whose context panics while the caller waits, and that recovers, as net/http does, does
// not stay in the queue: the key is not locked for a caller that is gone.
func TestUsersContext_Panics(t *testing.T) {
	t.Parallel()
	type call func(ctx context.Context, c *coord.Coordinator) error
	lock := func(ctx context.Context, c *coord.Coordinator) error {
		l, err := c.Lock(ctx, "k")
		if err == nil {
			err = l.Unlock()
		}
		return err
	}
	read := func(ctx context.Context, c *coord.Coordinator) error {
		l, err := c.RLock(ctx, "k")
		if err == nil {
			err = l.Unlock()
		}
		return err
	}
	for name, do := range map[string]call{"Lock": lock, "RLock": read} {
		for _, remote := range []bool{false, true} { // another process has the key
			for _, nested := range []bool{false, true} { // the caller has a lock of another key
				t.Run(fmt.Sprintf("%s/remote %t/nested %t", name, remote, nested), func(t *testing.T) {
					panics := 0
					for n := 1; panicsAt(t, n, do, remote, nested); n++ {
						panics++
					}
					if panics == 0 {
						t.Error("the context was not asked")
					}
				})
			}
		}
	}
}

// panicsAt makes a call that waits, with a context that panics when it is asked for the nth time.
// It reports whether it was asked so often, and checks that the key is free afterwards.
func panicsAt(t *testing.T, n int, do func(context.Context, *coord.Coordinator) error, remote, nested bool) (panicked bool) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		left := n
		c := start(t, a, &coord.Options{DeadlockAfter: time.Second})
		holder := c
		if remote {
			holder = start(t, a, nil)
		}
		l := must(holder.Lock(t.Context(), "k"))
		ctx := t.Context()
		if nested {
			other := must(c.Lock(ctx, "other"))
			defer other.Unlock()
			ctx = other.Context()
		}
		done := make(chan error, 1)
		go func() {
			defer func() {
				if recover() != nil {
					panicked = true
					close(done)
				}
			}()
			done <- do(brittle{ctx, &left}, c)
		}()
		synctest.Wait()
		time.Sleep(3 * time.Second) // it waits for longer than DeadlockAfter
		unlock(t, l)
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, c := range []*coord.Coordinator{c, holder} {
			limited, cancel := context.WithTimeout(t.Context(), time.Minute)
			l, err := c.Lock(limited, "k")
			cancel()
			if err != nil {
				t.Fatalf("it has panicked when asked for the time %d: %v", n, err)
			}
			unlock(t, l)
		}
	})
	return panicked
}
