package subjects

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// httpSizes: each block measures everything, by turns.
type httpSizes struct {
	blocks int
	calls  int // of the handler without a network, of each kind per block
	posts  int // over the network, of each kind per block
}

// What must hold of requests.
const (
	httpSerialize = 5   // microseconds more than the handler alone, at most
	httpRoute     = 1.3 // times a hop by httputil.ReverseProxy, at most
)

// measureHTTP lets a process with two nodes of a cluster serve requests.
func measureHTTP(ctx context.Context, b *Run) (report.Result, error) {
	s := b.Sizes.http
	r, err := harness.Alone(ctx, b.Bench, "http", httpTasks, httpTask{Blocks: s.blocks, Calls: s.calls, Posts: s.posts})
	if err != nil {
		return report.Result{}, err
	}
	return r.result(s), nil
}

func (r *httpResult) result(s httpSizes) report.Result {
	row := func(name string, part int, sample, base []float64) []string {
		return stats.Cells(name, sample, base, micros3, r.Used[part])
	}
	more := func(sample []float64) float64 {
		var d []float64
		for i := range sample {
			d = append(d, sample[i]-r.Bare[i])
		}
		return stats.Median(d) / 1000
	}
	return report.Result{
		Title: fmt.Sprintf("HTTP: requests whose key is local where they are served; %d blocks, by turns", s.blocks),
		Table: [][]string{
			append([]string{"microseconds", "median", "(min..max)", "ratio", "(min..max)"}, stats.UsedHead...),
			row("handler that does nothing", 0, r.Bare, r.Bare),
			row("in Serialize", 1, r.Serialized, r.Bare),
			row("in Serialize, looks at its context", 2, r.Looking, r.Bare),
			row("POST over loopback", 3, r.Direct, r.Proxy),
			row("the same by way of a ReverseProxy", 4, r.Proxy, r.Proxy),
			row("the same by way of Route", 5, r.Route, r.Proxy),
		},
		Notes: []string{
			"the first three without a network, mean of each block; the others by one client, p50 of each block; median of the blocks",
			"ratio: to the handler, or to the ReverseProxy, in each block; that one flushes at once and keeps its buffers, as Route does",
			fmt.Sprintf("both nodes, the proxy and the client are one process; GOMAXPROCS is %d", r.Procs),
			"CPU (nanoseconds), allocations, commands and bytes to Redis: of the process, per request, of rounds of one kind only",
			fmt.Sprintf("locks by path: own %s, others %s", figures.Thousands(r.Own), figures.Thousands(r.Other)),
		},
		Claims: []report.Claim{
			report.AtMost(httpSerialize, more(r.Serialized), "Serialize, microseconds per request"),
			report.AtMost(httpSerialize, more(r.Looking), "Serialize, the handler looks at its context"),
			report.AtMost(httpRoute, stats.Median(stats.PerRound(r.Route, r.Proxy)), "Route, times a hop by ReverseProxy"),
			report.AtMost(0, float64(r.Other), "locks that were not from memory"),
			report.AtMost(0, float64(r.Astray), "requests that Route did not bring to their owner"),
		},
	}
}

// micros3 writes nanoseconds as microseconds, also where they are few.
func micros3(ns float64) string { return stats.Number(ns / 1000) }
