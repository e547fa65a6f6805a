package rivals

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// serve runs the servers of variants until the test ends.
func serve(t *testing.T, list ...Variant) *Servers {
	s, err := StartServers(t.Context(), -1, list)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// open opens something as a process would, until the test ends. Without its server the test is
// skipped.
func open[L interface{ Close(context.Context) error }](t *testing.T, redis string, s *Servers, v Variant, f func(Environment) (L, error)) L {
	if !s.Has(v) {
		t.Skip(s.Why(v.Server))
	}
	client, count := harness.NewClient(redis, 4)
	l, err := f(Environment{
		Order:  harness.Order{Redis: redis, Namespace: "test", Debounce: 200 * time.Millisecond},
		Client: client, Server: s.Conn(v), Goroutines: 4, Count: count,
	})
	if err != nil {
		t.Fatal(errors.Join(err, client.Close()))
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), harness.CloseTime)
		defer cancel()
		if err := errors.Join(l.Close(ctx), client.Close()); err != nil {
			t.Error(err)
		}
	})
	return l
}

func TestVariants(t *testing.T) {
	t.Parallel()
	redis, s := redistest.Start(t), serve(t, Variants...)
	for _, v := range Variants {
		if !v.Alone { // two of it are two locks
			t.Run(v.Name, func(t *testing.T) {
				testVariant(t, v, open(t, redis.Addr, s, v, v.Open), open(t, redis.Addr, s, v, v.Open))
			})
		}
	}
}

func testVariant(t *testing.T, v Variant, all ...*Locker) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	failed := t.Error
	if strings.HasPrefix(v.Name, "rueidislock") {
		// It gives a call up that takes longer than 20 ms (TryNextAfter) and deletes the key that
		// the call may have set. Its own waiters do not hear of that, so on a busy machine one may
		// wait for ever.
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
}

// Each compared lock keeps its promise: readers are in together, and a writer is alone.
func TestReadersAndWriters(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	for name, x := range map[string]struct {
		server *ServerKind
		open   func(e Environment, key string) (*RW, error)
	}{
		"Redisson": {nil, OpenRedissonRW}, "PostgreSQL": {PostgresKind, OpenAdvisoryRW}, "etcd": {EtcdKind, OpenEtcdRW}, "ZooKeeper": {ZookeeperKind, OpenZookeeperRW},
	} {
		t.Run(name, func(t *testing.T) {
			v := Variant{Server: x.server}
			s := serve(t, v)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			under := func(lock func(context.Context) (func() error, error), f func()) {
				unlock, err := lock(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				f()
				if err := unlock(); err != nil {
					t.Error(err)
				}
			}
			data, readers, together := 0, atomic.Int32{}, make(chan struct{})
			var work sync.WaitGroup
			for range 2 { // processes
				l := open(t, redis.Addr, s, v, func(e Environment) (*RW, error) { return x.open(e, "k") })
				for range 2 {
					work.Go(func() {
						under(l.RLock, func() {
							if readers.Add(1) == 4 {
								close(together)
							}
							select {
							case <-together:
							case <-ctx.Done():
								t.Error("readers are not in together")
							}
						})
						for range 8 {
							under(l.Lock, func() {
								n := data
								time.Sleep(100 * time.Microsecond)
								data = n + 1 // lost if another one writes
							})
							under(l.RLock, func() {
								n := data
								time.Sleep(100 * time.Microsecond)
								if data != n {
									t.Error("a writer beside a reader")
								}
							})
						}
					})
				}
			}
			work.Wait()
			if data != 32 {
				t.Errorf("%d of 32 writes", data)
			}
		})
	}
}

func TestRedissonSemaphore(t *testing.T) {
	t.Parallel()
	client, _ := harness.NewClient(redistest.Start(t).Addr, 8)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var inside, most atomic.Int32
	var work sync.WaitGroup
	for range 2 {
		acquire, err := OpenRedissonSemaphore(Environment{Client: client}, "permits", 3)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			n := int32(1 + i%2)
			work.Go(func() {
				for range 25 {
					release, err := acquire(ctx, int(n))
					if err != nil {
						t.Error(err)
						return
					}
					now := inside.Add(n)
					for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
					}
					time.Sleep(100 * time.Microsecond)
					inside.Add(-n)
					if err := release(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	work.Wait()
	if most.Load() != 3 {
		t.Errorf("%d of 3 permits at the same time", most.Load())
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestKeyedMutex(t *testing.T) {
	var k KeyedMutex
	var work sync.WaitGroup
	n := make([]int, 3)
	for range 4 {
		work.Go(func() {
			for i := range 300 {
				key := "abc"[i%3 : i%3+1]
				k.Lock(key)
				n[i%3]++ // the race detector would see two at a time
				k.Unlock(key)
			}
		})
	}
	work.Wait()
	if n[0] != 400 || n[1] != 400 || n[2] != 400 || len(k.keys) != 0 {
		t.Errorf("%v, %d keys left", n, len(k.keys))
	}
}
