package singleflight_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
)

func one(context.Context) (int, error) { return 1, nil }

func BenchmarkDo(b *testing.B) {
	var g group
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		g.Do(ctx, "k", one)
	}
}

// Callers of one key: most of them join.
func BenchmarkDoParallel(b *testing.B) {
	var g group
	ctx := b.Context()
	var shared atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		n := int64(0)
		for pb.Next() {
			if _, s, _ := g.Do(ctx, "k", one); s {
				n++
			}
		}
		shared.Add(n)
	})
	b.ReportMetric(float64(shared.Load())/float64(b.N), "shared/op")
}

// Callers of a key each: the price of the one mutex.
func BenchmarkDoParallelKeys(b *testing.B) {
	var g group
	ctx := b.Context()
	var next atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		key := strconv.FormatInt(next.Add(1), 10)
		for pb.Next() {
			g.Do(ctx, key, one)
		}
	})
}

// A flight that is abandoned by its only member.
func BenchmarkJoinLeave(b *testing.B) {
	var g group
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		m := g.Join(ctx, "k", untilCancelled)
		m.Leave()
		<-m.Done()
	}
}
