package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A load is clients that add items to random orders, each one request after the other, for a while.
// A request that has begun is waited for.
type load struct {
	url       string // of the service
	clients   int
	resources int
	duration  time.Duration

	confirmed, failed atomic.Int64 // until now
}

const (
	requestTime = 2*lockWait + 10*time.Second // for one request, if it is not answered sooner
	failPause   = 50 * time.Millisecond       // of a client after a failed request, before the next
	showEvery   = 200 * time.Millisecond
)

// A tally counts the answers that clients have seen.
type tally struct {
	confirmed int64           // answered with 200: an item was added
	failed    int64           // all else
	failure   string          // the first client's first one
	latencies []time.Duration // of confirmed and failed ones
}

func (t *tally) add(other tally) {
	t.confirmed += other.confirmed
	t.failed += other.failed
	if t.failure == "" {
		t.failure = other.failure
	}
	t.latencies = append(t.latencies, other.latencies...)
}

// quantile returns the latency that a part q (0 to 1) of all do not exceed, or zero if there are
// none. They must be sorted.
func (t *tally) quantile(q float64) time.Duration {
	if len(t.latencies) == 0 {
		return 0
	}
	return t.latencies[min(int(q*float64(len(t.latencies))), len(t.latencies)-1)]
}

// run returns when the last request is answered, and how long that took. If ctx ends, requests are
// given up. show is called now and then, by one goroutine.
func (l *load) run(ctx context.Context, show func(elapsed time.Duration)) (tally, time.Duration) {
	transport := &http.Transport{MaxIdleConnsPerHost: l.clients}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: requestTime}
	begin := time.Now()
	tallies := make([]tally, l.clients)
	done := make(chan struct{})
	go func() {
		var wg sync.WaitGroup
		for i := range tallies {
			wg.Go(func() { l.runClient(ctx, client, begin.Add(l.duration), &tallies[i]) })
		}
		wg.Wait()
		close(done)
	}()
	ticker := time.NewTicker(showEvery)
	defer ticker.Stop()
	for running := true; running; {
		select {
		case <-ticker.C:
			show(time.Since(begin))
		case <-done:
			running = false
		}
	}
	elapsed := time.Since(begin)
	var sum tally
	for _, t := range tallies {
		sum.add(t)
	}
	slices.Sort(sum.latencies)
	return sum, elapsed
}

func (l *load) runClient(ctx context.Context, client *http.Client, end time.Time, t *tally) {
	for ctx.Err() == nil && time.Now().Before(end) {
		begin := time.Now()
		err := l.addItem(ctx, client, rand.IntN(l.resources)+1)
		if ctx.Err() != nil {
			return
		}
		t.latencies = append(t.latencies, time.Since(begin))
		if err == nil {
			t.confirmed++
			l.confirmed.Add(1)
			continue
		}
		t.failed++
		l.failed.Add(1)
		if t.failure == "" {
			t.failure = err.Error()
		}
		select {
		case <-time.After(failPause):
		case <-ctx.Done():
		}
	}
}

// addItem is one request.
func (l *load) addItem(ctx context.Context, client *http.Client, id int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/orders/%d/items", l.url, id), nil)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", res.Status, strings.TrimSpace(string(body)))
	}
	return nil
}
