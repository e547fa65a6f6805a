package coord_test

import (
	"context"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/redisarbiter"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// BenchmarkRows is the cost of a lock where services lock, beside the floor of each row: one
// reading of the clock, without which nothing is granted (rule 1), and two pairs of a mutex, as
// Lock and Unlock have one each. Rows and floors are measured by turns in batches so short that
// most are not interrupted. The figures are medians, which other work of the machine hardly moves.
func BenchmarkRows(b *testing.B) {
	ctx := context.Background()
	own := func(b *testing.B) *coord.Coordinator {
		c := join(b, fallback.NewMemory(), quick())
		settle(b, 61, c)
		return c
	}
	pair := func(b *testing.B, c *coord.Coordinator, key string) {
		l, err := c.Lock(ctx, key)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Unlock(); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("warm", func(b *testing.B) {
		c := own(b)
		byTurns(b, func() { pair(b, c, "order-4711") })
	})
	b.Run("million", func(b *testing.B) {
		c, keys, i := own(b), makeKeys(1_000_000), 0
		byTurns(b, func() { pair(b, c, keys[i]); i = (i + 1) % len(keys) })
	})
	b.Run("context", func(b *testing.B) {
		c := own(b)
		byTurns(b, func() {
			l, err := c.Lock(ctx, "order-4711")
			if err != nil || l.Context() == nil {
				b.Fatal(err)
			}
			if err := l.Unlock(); err != nil {
				b.Fatal(err)
			}
		})
	})
	do := func(b *testing.B, f func(context.Context, coord.Lock) error) {
		c := own(b)
		with, cancel := context.WithCancel(ctx)
		defer cancel()
		byTurns(b, func() {
			if err := c.Do(with, "order-4711", f); err != nil {
				b.Fatal(err)
			}
		})
	}
	b.Run("do", func(b *testing.B) { do(b, func(context.Context, coord.Lock) error { return nil }) })
	b.Run("do-err", func(b *testing.B) { do(b, func(ctx context.Context, _ coord.Lock) error { return ctx.Err() }) })
	b.Run("do-done", func(b *testing.B) {
		do(b, func(ctx context.Context, _ coord.Lock) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			default:
				return nil
			}
		})
	})
	b.Run("read", func(b *testing.B) {
		c := own(b)
		byTurns(b, func() {
			l, err := c.RLock(ctx, "order-4711")
			if err != nil {
				b.Fatal(err)
			}
			if err := l.Unlock(); err != nil {
				b.Fatal(err)
			}
		})
	})
	b.Run("alone", func(b *testing.B) {
		c := benchmarked(b)
		byTurns(b, func() { pair(b, c, "order-4711") })
	})
}

// BenchmarkPair is the row of a warm key, without the call of a function per pair, which takes 3 ns
// of it.
func BenchmarkPair(b *testing.B) {
	ctx := context.Background()
	c := join(b, fallback.NewMemory(), quick())
	settle(b, 61, c)
	const batch = 256
	var all []time.Duration
	for i := 0; i < b.N; i += batch {
		start := time.Now()
		for range batch {
			l, err := c.Lock(ctx, "order-4711")
			if err != nil {
				b.Fatal(err)
			}
			if err := l.Unlock(); err != nil {
				b.Fatal(err)
			}
		}
		all = append(all, time.Since(start))
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2])/batch, "median")
	b.ReportMetric(float64(all[len(all)/10])/batch, "p10")
}

// byTurns measures f, and its floor.
func byTurns(b *testing.B, f func()) {
	var mu sync.Mutex
	began := time.Now()
	clock := func() { _ = time.Since(began) }
	mutex := func() {
		mu.Lock()
		mu.Unlock() //nolint:staticcheck // the pair is what is measured
	}
	const batch = 256
	var of [3][]time.Duration
	for range 4 * batch {
		f()
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += batch {
		for i, f := range []func(){f, clock, mutex} {
			start := time.Now()
			for range batch {
				f()
			}
			of[i] = append(of[i], time.Since(start))
		}
	}
	b.StopTimer()
	var medians [3]float64
	for i, all := range of {
		slices.Sort(all)
		medians[i] = float64(all[len(all)/2]) / batch
	}
	b.ReportMetric(medians[0], "ns/op")
	b.ReportMetric(float64(of[0][len(of[0])/10])/batch, "p10")
	b.ReportMetric(medians[1], "clock")
	b.ReportMetric(medians[2], "mutex")
	b.ReportMetric(medians[0]/(medians[1]+2*medians[2]), "x-floor")
}

func makeKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "order-" + strconv.Itoa(i)
	}
	return keys
}

// BenchmarkHeld is the memory that a held lock takes, each of another key: an operation is one of
// them.
func BenchmarkHeld(b *testing.B) {
	c := join(b, fallback.NewMemory(), quick())
	settle(b, 61, c)
	keys := makeKeys(b.N)
	locks := make([]coord.Lock, b.N)
	ctx := context.Background()
	before := heapInUse()
	b.ReportAllocs()
	b.ResetTimer()
	for i, key := range keys {
		l, err := c.Lock(ctx, key)
		if err != nil {
			b.Fatal(err)
		}
		locks[i] = l
	}
	b.StopTimer()
	b.ReportMetric(float64(heapInUse()-before)/float64(b.N), "held-B")
	for _, l := range locks {
		if err := l.Unlock(); err != nil {
			b.Fatal(err)
		}
	}
	runtime.KeepAlive(keys)
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkCold is a lock of a key at Redis that this process has not used, and its Unlock, beside
// SET on the same connection.
func BenchmarkCold(b *testing.B) {
	server := redistest.Start(b)
	client := server.Client(b)
	c := startDefault(b, redisarbiter.New(client, &redisarbiter.Options{ColdStart: true}), nil)
	keys, ctx := makeKeys(b.N+1000), context.Background()
	var locks, sets []time.Duration
	for i, key := range keys {
		begun := time.Now()
		l, err := c.Lock(ctx, key)
		if err != nil {
			b.Fatal(err)
		}
		took := time.Since(begun)
		if err := l.Unlock(); err != nil {
			b.Fatal(err)
		}
		begun = time.Now()
		if err := client.Set(ctx, key, "token", time.Minute).Err(); err != nil {
			b.Fatal(err)
		}
		if i >= 1000 {
			locks, sets = append(locks, took), append(sets, time.Since(begun))
		}
	}
	slices.Sort(locks)
	slices.Sort(sets)
	lock, set := float64(locks[len(locks)/2]), float64(sets[len(sets)/2])
	b.ReportMetric(lock, "ns/op")
	b.ReportMetric(set, "SET")
	b.ReportMetric(lock/set, "x-SET")
	b.ReportMetric(float64(locks[len(locks)/10])/float64(sets[len(sets)/10]), "p10-x-SET")
}
