package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestLoadReachesEveryOrder(t *testing.T) {
	var mu sync.Mutex // protects seen
	seen := make(map[string]int64)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[r.Method+" "+r.URL.Path]++
	}))
	defer server.Close()
	l := &load{url: server.URL, clients: 4, resources: 3, duration: 300 * time.Millisecond}
	shown := 0
	sum, elapsed := l.run(t.Context(), func(time.Duration) { shown++ })
	var total int64
	for _, id := range []string{"1", "2", "3"} {
		total += seen["POST /orders/"+id+"/items"]
	}
	if len(seen) != 3 || total != sum.confirmed || total == 0 || sum.failed != 0 || l.confirmed.Load() != total {
		t.Errorf("%v, %+v", seen, sum.confirmed)
	}
	if int64(len(sum.latencies)) != total || !slices.IsSorted(sum.latencies) {
		t.Errorf("%d latencies of %d requests", len(sum.latencies), total)
	}
	if elapsed < l.duration || shown == 0 {
		t.Errorf("%v, shown %d times", elapsed, shown)
	}
}

func TestLoadCountsFailures(t *testing.T) {
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch n.Add(1) % 3 {
		case 0:
			http.Error(w, "locked", http.StatusLocked)
		case 1:
			panic(http.ErrAbortHandler)
		}
	}))
	defer server.Close()
	l := &load{url: server.URL, clients: 1, resources: 1, duration: 500 * time.Millisecond}
	sum, _ := l.run(t.Context(), func(time.Duration) {})
	if sum.failed < 2 || sum.confirmed == 0 || sum.failed != l.failed.Load() ||
		int64(len(sum.latencies)) != sum.failed+sum.confirmed || !strings.Contains(sum.failure, "EOF") {
		t.Errorf("%d confirmed, %d failed, one with %s", sum.confirmed, sum.failed, sum.failure)
	}
	var other tally
	other.add(tally{failed: 1, failure: "423 Locked: locked"})
	other.add(sum)
	if other.failure != "423 Locked: locked" || other.failed != sum.failed+1 {
		t.Errorf("%d failed, one with %s", other.failed, other.failure)
	}
}

// A request that has begun is waited for, unless the run is interrupted.
func TestLoadEnds(t *testing.T) {
	began, release := make(chan struct{}, 1), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()

	l := &load{url: server.URL, clients: 1, resources: 1, duration: 100 * time.Millisecond}
	var once sync.Once
	sum, _ := l.run(t.Context(), func(elapsed time.Duration) {
		if elapsed > l.duration {
			once.Do(func() { close(release) })
		}
	})
	if sum.confirmed != 1 || sum.failed != 0 {
		t.Errorf("%d confirmed, %d failed", sum.confirmed, sum.failed)
	}
	<-began

	release = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-began
		cancel()
	}()
	l = &load{url: server.URL, clients: 1, resources: 1, duration: time.Hour}
	if sum, _ = l.run(ctx, func(time.Duration) {}); sum.confirmed != 0 || sum.failed != 0 || len(sum.latencies) != 0 {
		t.Errorf("%d confirmed, %d failed", sum.confirmed, sum.failed)
	}
}

func TestQuantile(t *testing.T) {
	var empty tally
	if got := empty.quantile(0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	var hundred tally
	for i := range 100 {
		hundred.latencies = append(hundred.latencies, time.Duration(i))
	}
	for q, want := range map[float64]time.Duration{0: 0, 0.5: 50, 0.99: 99, 1: 99} {
		if got := hundred.quantile(q); got != want {
			t.Errorf("%g: %d, want %d", q, got, want)
		}
	}
}
