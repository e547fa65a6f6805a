package main

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// stallResults compares the variants, scenario by scenario.
func stallResults(s stallSizes, runs []*stallRun) result {
	r := result{
		title: fmt.Sprintf("STALLS: %d processes, %s requests per second arrive by the clock, each for one of %s keys, for %v; %d rounds, by turns",
			s.processes, number(s.rate*float64(s.processes)), figures.Thousands(int64(s.keys)), s.hold, s.rounds),
		table: [][]string{{"", "requests", "failed", fmt.Sprintf("waited > %v", stallSlow), "p50 wait ms", "p99", "p99.9", "longest"}},
		notes: []string{
			"a wait counts from when the request should have arrived, and until it failed if it did; a request fails if it has no lock after " + s.limit.String() +
				", or the lock says that it is not to be had",
			"rolling: a new process joins, gets the requests, and the old one leaves; another " + s.every.String() + " later",
			"killed: the others get its requests at once, and a new process joins; requests that it had itself are not counted",
			"outage: Redis is killed, started again with its data (appendonly) after " + s.outage.String() + ", and watched for " + s.after.String(),
			"what is per operation is of the processes that were not killed, with what it takes them to join and to leave, or to open and close;",
			"charts show the round with the longest wait of each",
			"redislock: " + variantHow(stallRival),
		},
	}
	takeover := 3 * time.Second // the default of coord.Cluster.Takeover
	if ttl := s.sessionTTL; ttl > 0 && ttl <= takeover {
		takeover = ttl // which has none
	}
	byScenario := make(map[string][]*stallRun)
	for _, x := range runs {
		byScenario[x.scenario.name] = append(byScenario[x.scenario.name], x)
		w := &x.waits
		r.table = append(r.table, []string{
			x.scenario.name + ": " + x.variant, figures.Thousands(x.arrived), figures.Thousands(x.failed), figures.Thousands(x.slow),
			millis(w.quantile(0.5)), millis(w.quantile(0.99)), millis(w.quantile(0.999)), millis(w.Longest),
		})
		r.distributions = append(r.distributions, w.distribution(x.scenario.name+": "+x.variant, kindOf(x.variant)))
		if x.failed > 0 {
			r.notes = append(r.notes, fmt.Sprintf("%s, %s: %s failed; one: %s", x.scenario.name, x.variant, figures.Thousands(x.failed), x.failure))
		}
		if x.variant != stallOurs {
			continue
		}
		limit, text := stallRolling, x.scenario.name+": longest wait, seconds"
		switch x.scenario.name {
		case "outage":
			limit = stallOutage
		case "killed":
			limit, text = takeover+stallKilled, text+": until the others may take over from the process that was killed, and to do so"
		}
		r.claims = append(r.claims,
			atMost(0, float64(x.failed), x.scenario.name+": locks that failed"),
			atMost(limit.Seconds(), w.Longest.Seconds(), text),
			atMost(0, float64(x.stale), x.scenario.name+": tokens not above the one before"),
			// Requests that arrive by the clock cannot be fewer because locks are slow; if they are, the machine is.
			atLeast(0.9, ratio(float64(x.arrived), s.rate*float64(s.processes)*float64(x.moments)*stallBucket.Seconds()),
				x.scenario.name+": requests that arrived, of those that should have"))
	}
	for _, scenario := range stallScenarios {
		list := byScenario[scenario.name]
		var all []contestant
		for _, x := range list {
			all = append(all, contestant{scenario.name + ": " + x.variant, kindOf(x.variant), &x.tally})
		}
		r.compare(all)
		line := chart.Timeline{
			Head:   chart.Head{Name: "stalls-" + scenario.name, Title: scenario.title, About: scenario.about},
			Bucket: stallBucket.Seconds(), Rate: "locks/s",
		}
		for _, x := range list {
			line.Tracks = append(line.Tracks, x.track)
		}
		r.figures = append(r.figures, figure{Timeline: &line})
		if len(list) == 2 {
			r.versus = append(r.versus, chart.Ratio{
				Name:  fmt.Sprintf("%s, part of requests served within %v vs. %s", scenario.short, stallSlow, list[1].variant),
				Times: list[0].served() / list[1].served(),
			})
			if list[0].failed+list[1].failed == 0 { // a request that fails at once has not waited
				r.versus = append(r.versus, against(fmt.Sprintf("%s, longest wait vs. %s", scenario.short, list[1].variant),
					perRound(list[1].longest(), list[0].longest())))
			}
		}
	}
	return r
}

// longest is the longest wait in each round.
func (r *stallRun) longest() (list []float64) {
	for _, x := range r.rounds {
		list = append(list, x.Max)
	}
	return list
}

// served is the part of the requests that had their lock in time. Those that failed may have waited for long as well, so
// this is the least that it can be.
func (r *stallRun) served() float64 {
	return 1 - ratio(float64(min(r.failed+r.slow, r.arrived)), float64(r.arrived))
}

func variantHow(name string) string {
	v, _, err := findVariant(name)
	if err != nil {
		return err.Error()
	}
	return v.how
}
