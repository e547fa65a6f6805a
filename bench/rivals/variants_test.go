package rivals

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// openVariants opens a variant as n processes would.
func openVariants(t *testing.T, redis string, s *Servers, v Variant, n int) []*Locker {
	t.Helper()
	var all []*Locker
	for range n {
		client, count := harness.NewClient(redis, 4)
		l, err := v.Open(Environment{
			Order:  harness.Order{Redis: redis, Namespace: "test", Debounce: 200 * time.Millisecond},
			Client: client, Server: s.Conn(v), Goroutines: 4, Count: count,
		})
		if err != nil {
			t.Fatal(errors.Join(err, client.Close()))
		}
		all = append(all, l)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), harness.CloseTime)
			defer cancel()
			if err := errors.Join(l.Close(ctx), client.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	return all
}

// forVariants calls f for each variant that is safe, with the servers that they need.
func forVariants(t *testing.T, f func(t *testing.T, redis string, s *Servers, v Variant)) {
	redis := redistest.Start(t)
	s, err := StartServers(t.Context(), -1, Variants)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, v := range Variants {
		if v.Alone { // two of it, as this opens them, are two locks
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			if !s.Has(v) {
				t.Skip(s.Why(v.Server))
			}
			f(t, redis.Addr, s, v)
		})
	}
}

func TestVariants(t *testing.T) {
	t.Parallel()
	forVariants(t, func(t *testing.T, redis string, s *Servers, v Variant) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		failed := t.Error
		if strings.HasPrefix(v.Name, "rueidislock") {
			// It gives a call up that takes longer than 20 ms (TryNextAfter) and deletes what the call may
			// have set; its own waiters do not hear of that, so on a busy machine one may wait for ever.
			ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			failed = func(args ...any) {
				if ctx.Err() == nil {
					t.Error(args...)
				}
			}
		}
		var inside, sections atomic.Int64
		var work sync.WaitGroup
		all := openVariants(t, redis, s, v, 2)
		for i := range 4 {
			work.Go(func() {
				for range 3 {
					if err := all[i%2].Section(ctx, "contended", func(uint64) {
						if inside.Add(1) != 1 {
							t.Error("two hold the lock")
						}
						await.Throughout(t, time.Millisecond, "alone", func() bool { return inside.Load() == 1 })
						inside.Add(-1)
						sections.Add(1)
					}); err != nil {
						failed(err)
					}
				}
			})
		}
		work.Wait()
		if n := sections.Load(); n != 12 && ctx.Err() == nil {
			t.Errorf("%d sections", n)
		}
		if err := all[0].Section(ctx, "another", func(uint64) {
			if err := all[1].Section(ctx, "contended", func(uint64) {}); err != nil {
				failed(err)
			}
		}); err != nil {
			failed(err)
		}

		if ctx.Err() != nil {
			t.Skip("a waiter was not woken")
		}
		// A wait that is given up is an error, and leaves nothing locked.
		in, out := make(chan struct{}), make(chan struct{})
		work.Go(func() {
			if err := all[0].Section(ctx, "contended", func(uint64) { close(in); <-out }); err != nil {
				failed(err)
				close(in)
			}
		})
		<-in
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		gone := make(chan struct{})
		work.Go(func() {
			defer close(gone)
			if err := all[1].Section(short, "contended", func(uint64) { t.Error("the lock is held") }); err == nil {
				t.Error("no error")
			}
		})
		select {
		case <-gone:
		case <-time.After(500 * time.Millisecond): // ZooKeeper's client waits for its turn whatever happens
		}
		close(out)
		work.Wait()
		if err := all[1].Section(ctx, "contended", func(uint64) {}); err != nil {
			failed(err)
		}
	})
}
