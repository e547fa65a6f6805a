package subjects

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/report"
	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// stallResults compares the variants, scenario by scenario.
func stallResults(s stallSizes, runs []*stallRun) report.Result {
	r := report.Result{
		Title: fmt.Sprintf("STALLS: %d processes, %s requests per second arrive by the clock, each for one of %s keys, for %v; %d rounds, by turns",
			s.processes, stats.Number(s.rate*float64(s.processes)), figures.Thousands(int64(s.keys)), s.hold, s.rounds),
		Table: [][]string{{"", "requests", "failed", fmt.Sprintf("waited > %v", stallSlow), "p50 wait ms", "p99", "p99.9", "longest"}},
		Notes: []string{
			"a wait counts from when the request should have arrived, and until it failed if it did; a request fails if it has no lock after " + s.limit.String() +
				", or the lock says that it is not to be had",
			"rolling: a new process joins, gets the requests, and the old one leaves; another " + s.every.String() + " later",
			"killed: the others get its requests at once, and a new process joins; requests that it had itself are not counted",
			"outage: Redis is killed, started again with its data (appendonly) after " + s.outage.String() + ", and watched for " + s.after.String(),
			"what is per operation is of the processes that were not killed, with what it takes them to join and to leave, or to open and close;",
			"charts show the round with the longest wait of each",
		},
	}
	said := make(map[string]bool)
	for _, x := range runs {
		if v := x.variant; v.Name != stallOurs && !said[v.Name] {
			said[v.Name] = true
			r.Notes = append(r.Notes, v.Name+": "+v.How)
		}
	}
	takeover := 3 * time.Second // the default of coord.Cluster.Takeover
	if ttl := s.sessionTTL; ttl > 0 && ttl <= takeover {
		takeover = ttl // which has none
	}
	byScenario := make(map[string][]*stallRun)
	for _, x := range runs {
		byScenario[x.scenario.name] = append(byScenario[x.scenario.name], x)
		w := &x.Waits
		r.Table = append(r.Table, []string{
			x.scenario.name + ": " + x.variant.Name, figures.Thousands(x.arrived), figures.Thousands(x.failed), figures.Thousands(x.slow),
			stats.Millis(w.Quantile(0.5)), stats.Millis(w.Quantile(0.99)), stats.Millis(w.Quantile(0.999)), stats.Millis(w.Longest),
		})
		r.Distributions = append(r.Distributions, report.DistributionOf(w, x.scenario.name+": "+x.variant.Name, x.variant.Kind()))
		if x.failed > 0 {
			r.Notes = append(r.Notes, fmt.Sprintf("%s, %s: %s failed; one: %s", x.scenario.name, x.variant.Name, figures.Thousands(x.failed), x.failure))
		}
		if x.variant.Name != stallOurs {
			continue
		}
		limit, text := stallRolling, x.scenario.name+": longest wait, seconds"
		switch x.scenario.name {
		case "outage":
			limit = stallOutage
		case "killed":
			limit, text = takeover+stallKilled, text+": until the others may take over from the process that was killed, and to do so"
		}
		r.Claims = append(r.Claims,
			report.AtMost(0, float64(x.failed), x.scenario.name+": locks that failed"),
			report.AtMost(limit.Seconds(), w.Longest.Seconds(), text),
			report.AtMost(0, float64(x.stale), x.scenario.name+": tokens not above the one before"),
			// Requests that arrive by the clock cannot be fewer because locks are slow; if they are, the
			// machine is.
			report.AtLeast(0.9, stats.Ratio(float64(x.arrived), s.rate*float64(s.processes)*float64(x.moments)*stallBucket.Seconds()),
				x.scenario.name+": requests that arrived, of those that should have"))
	}
	for _, scenario := range stallScenarios {
		list := byScenario[scenario.name]
		var all []report.Contestant
		for _, x := range list {
			all = append(all, report.Contestant{Name: scenario.name + ": " + x.variant.Name, Kind: x.variant.Kind(), Tally: &x.Tally})
		}
		r.Compare(all)
		line := chart.Timeline{
			Head:   chart.Head{Name: "stalls-" + scenario.name, Title: scenario.title, About: scenario.about},
			Bucket: stallBucket.Seconds(), Rate: "locks/s",
		}
		for _, x := range list {
			line.Tracks = append(line.Tracks, x.track)
		}
		r.Figures = append(r.Figures, report.Figure{Timeline: &line})
		for _, x := range list[1:] {
			if x.variant.Name != stallRival {
				continue
			}
			r.Versus = append(r.Versus, chart.Ratio{
				Name:  fmt.Sprintf("%s, part of requests served within %v vs. %s", scenario.short, stallSlow, stallRival),
				Times: list[0].served() / x.served(),
			})
			if list[0].failed+x.failed == 0 { // a request that fails at once has not waited
				r.Versus = append(r.Versus, report.Against(fmt.Sprintf("%s, longest wait vs. %s", scenario.short, stallRival),
					stats.PerRound(x.longest(), list[0].longest())))
			}
		}
	}
	return r
}

// longest is the longest wait in each round.
func (r *stallRun) longest() (list []float64) {
	for _, x := range r.Rounds {
		list = append(list, x.Max)
	}
	return list
}

// served is the part of the requests that had their lock in time. Those that failed may have waited
// for long as well, so this is the least that it can be.
func (r *stallRun) served() float64 {
	return 1 - stats.Ratio(float64(min(r.failed+r.slow, r.arrived)), float64(r.arrived))
}
