package coord_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// The cost of a read lock of a key that the process reads already: with -cpu 1,2 also whether
// processors wait for each other. Beside it is the same with sync.RWMutex.

func BenchmarkRLock(b *testing.B) {
	b.Run("own", func(b *testing.B) {
		c := join(b, fallback.NewMemory(), quick())
		settle(b, 61, c)
		readers(b, c, "catalogue")
	})
	b.Run("delegated", func(b *testing.B) { // by another node, which owns the key
		a := fallback.NewMemory()
		c, other := join(b, a, quick()), join(b, a, quick())
		settle(b, 61, c, other)
		for i := 0; ; i++ {
			key := "catalogue-" + strconv.Itoa(i)
			if n, ok := c.Owner(key); ok && !n.Self {
				readers(b, c, key)
				return
			}
		}
	})
	b.Run("arbiter", func(b *testing.B) { readers(b, benchmarked(b), "catalogue") })
	b.Run("clock", func(b *testing.B) { // nothing that processors share: whether they make each other slower
		began := time.Now()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_ = time.Since(began)
			}
		})
	})
	b.Run("RWMutex", func(b *testing.B) {
		var mu sync.RWMutex
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				mu.RLock()
				mu.RUnlock() //nolint:staticcheck // the pair is what is measured
			}
		})
	})
}

// readers lets a goroutine for each processor read a key again and again.
func readers(b *testing.B, c *coord.Coordinator, key string) {
	ctx := context.Background()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l, err := c.RLock(ctx, key)
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
