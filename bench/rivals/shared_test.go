package rivals

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// Readers are in together, and a writer is alone: what is compared does what it says.
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
			s, err := StartServers(t.Context(), -1, []Variant{v})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Stop(); err != nil {
					t.Error(err)
				}
			}()
			if !s.Has(v) {
				t.Skip(s.Why(x.server))
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			data, readers, together := 0, atomic.Int32{}, make(chan struct{})
			var work sync.WaitGroup
			for range 2 { // processes
				client, count := harness.NewClient(redis.Addr, 4)
				l, err := x.open(Environment{Order: harness.Order{Namespace: "test"}, Client: client, Server: s.Conn(v), Goroutines: 4, Count: count}, "k")
				if err != nil {
					t.Fatal(errors.Join(err, client.Close()))
				}
				defer func() {
					if err := errors.Join(l.Close(), client.Close()); err != nil {
						t.Error(err)
					}
				}()
				for range 2 {
					work.Go(func() {
						unlock, err := l.RLock(ctx)
						if err != nil {
							t.Error(err)
							return
						}
						if readers.Add(1) == 4 {
							close(together)
						}
						select {
						case <-together:
						case <-ctx.Done():
							t.Error("readers are not in together")
						}
						if err := unlock(); err != nil {
							t.Error(err)
						}
						for range 8 {
							unlock, err := l.Lock(ctx)
							if err != nil {
								t.Error(err)
								return
							}
							n := data
							time.Sleep(100 * time.Microsecond)
							data = n + 1 // lost if another one writes
							if err := unlock(); err != nil {
								t.Error(err)
							}
							unlock, err = l.RLock(ctx)
							if err != nil {
								t.Error(err)
								return
							}
							n = data
							time.Sleep(100 * time.Microsecond)
							if data != n {
								t.Error("a writer beside a reader")
							}
							if err := unlock(); err != nil {
								t.Error(err)
							}
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
