package coord_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// The cost of a lock when no server is asked: over the memory arbiter, so even a hold costs no
// round trip. Beside each benchmark is the same with the means of the language.

func benchmarked(b *testing.B) *coord.Coordinator {
	b.Helper()
	c, err := coord.New(context.Background(), fallback.NewMemory(), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil { // b.Context() has ended by now
			b.Error(err)
		}
	})
	return c
}

// One caller, one key: each lock but the first takes a turn of the hold that lingers.
func BenchmarkLingering(b *testing.B) {
	c := benchmarked(b)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		l, err := c.Lock(ctx, "key")
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Unlock(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLingeringMutex(b *testing.B) {
	var mu sync.Mutex
	b.ReportAllocs()
	for b.Loop() {
		mu.Lock()
		mu.Unlock() //nolint:staticcheck // the pair is what is measured
	}
}

// contenders is how many goroutines want the same key.
const contenders = 64

// contend runs f b.N times, by so many goroutines.
func contend(b *testing.B, f func()) {
	b.ReportAllocs()
	var left atomic.Int64
	var work sync.WaitGroup
	left.Store(int64(b.N))
	b.ResetTimer()
	for range contenders {
		work.Go(func() {
			for left.Add(-1) >= 0 {
				f()
			}
		})
	}
	work.Wait()
}

// Callers of one key: each unlock hands the turn to the next waiter. An operation is one hand-over.
func BenchmarkHandOver(b *testing.B) {
	c := benchmarked(b)
	ctx := b.Context()
	contend(b, func() {
		l, err := c.Lock(ctx, "key")
		if err != nil {
			b.Error(err)
			return
		}
		if err := l.Unlock(); err != nil {
			b.Error(err)
		}
	})
}

// The same by a channel that holds one token: it serves its receivers in order, too.
func BenchmarkHandOverChannel(b *testing.B) {
	token := make(chan struct{}, 1)
	token <- struct{}{}
	contend(b, func() {
		<-token
		token <- struct{}{}
	})
}

// Two goroutines that wake each other: the least cost of a hand-over. An operation is one of the
// two.
func BenchmarkHandOverPingPong(b *testing.B) {
	ping, pong := make(chan struct{}), make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		for range ping {
			pong <- struct{}{}
		}
	})
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if n++; n%2 == 0 {
			continue // the other one's turn was part of the last operation
		}
		ping <- struct{}{}
		<-pong
	}
	close(ping)
	work.Wait()
}

// Callers of a key each: they share only the coordinator.
func BenchmarkKeys(b *testing.B) {
	c := benchmarked(b)
	ctx := b.Context()
	var next atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		key := "key-" + strconv.FormatInt(next.Add(1), 10)
		for pb.Next() {
			l, err := c.Lock(ctx, key)
			if err != nil {
				b.Error(err)
				return
			}
			if err := l.Unlock(); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// A mutex per key in one map, behind a mutex of its own.
func BenchmarkKeysMutex(b *testing.B) {
	var mu sync.Mutex // protects keys
	keys := make(map[string]*sync.Mutex)
	var next atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		key := "key-" + strconv.FormatInt(next.Add(1), 10)
		for pb.Next() {
			mu.Lock()
			k := keys[key]
			if k == nil {
				k = new(sync.Mutex)
				keys[key] = k
			}
			mu.Unlock()
			k.Lock()
			k.Unlock() //nolint:staticcheck // the pair is what is measured
		}
	})
}

// A key of a partition that this node owns, which no other one wants: routing, clock check and
// fence included.
func BenchmarkOwn(b *testing.B) {
	c := join(b, fallback.NewMemory(), quick())
	settle(b, 61, c)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		l, err := c.Lock(ctx, "order-4711")
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Unlock(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOwnHandOver(b *testing.B) {
	c := join(b, fallback.NewMemory(), quick())
	settle(b, 61, c)
	ctx := b.Context()
	contend(b, func() {
		l, err := c.Lock(ctx, "key")
		if err != nil {
			b.Error(err)
			return
		}
		if err := l.Unlock(); err != nil {
			b.Error(err)
		}
	})
}

func BenchmarkClock(b *testing.B) {
	for b.Loop() {
		_ = time.Now()
	}
}

func BenchmarkClockSince(b *testing.B) {
	base := time.Now()
	for b.Loop() {
		_ = time.Since(base)
	}
}

// Keys of another node's, without lingering: a request, a grant and a release each, by 64 callers.
func BenchmarkForward(b *testing.B) {
	a := fallback.NewMemory()
	o := quick()
	o.Handoff.Linger = -1
	c, other := join(b, a, o), join(b, a, o)
	settle(b, 61, c, other)
	var keys []string
	for i := 0; len(keys) < contenders; i++ {
		key := "key-" + strconv.Itoa(i)
		if n, ok := c.Owner(key); ok && !n.Self {
			keys = append(keys, key)
		}
	}
	ctx := b.Context()
	var next atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(contenders / 2)
	b.RunParallel(func(pb *testing.PB) {
		key := keys[int(next.Add(1))%len(keys)]
		for pb.Next() {
			l, err := c.Lock(ctx, key)
			if err != nil {
				b.Error(err)
				return
			}
			if err := l.Unlock(); err != nil {
				b.Error(err)
			}
		}
	})
}
