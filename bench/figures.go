package main

import (
	"strings"

	"github.com/holdfast-go/holdfast/bench/chart"
)

// kindOf tells ours from theirs by the name of a variant.
func kindOf(name string) chart.Kind {
	if strings.HasPrefix(name, "Holdfast") {
		return chart.Ours
	}
	return chart.Rival
}

// bar sums up a sample.
func bar(name string, kind chart.Kind, sample []float64) chart.Bar {
	s := spreadOf(sample)
	return chart.Bar{Name: name, Kind: kind, Value: s.median, Least: s.least, Most: s.most}
}

// timesFloor says beside a bar how many times a floor it is.
func timesFloor(b chart.Bar, sample, floor []float64, name string) chart.Bar {
	b.Note = number(median(perRound(sample, floor))) + " times " + name
	return b
}

// against is a row of what Holdfast is compared with: times it is better, in each round. Less than 1 is worse.
func against(name string, times []float64) chart.Ratio {
	s := spreadOf(times)
	return chart.Ratio{Name: name, Times: s.median, Least: s.least, Most: s.most}
}

// distribution returns the quantiles of what was recorded.
func (h *histogram) distribution(name string, kind chart.Kind) distribution {
	d := distribution{
		Name: name, Kind: kind, Count: sum(h.Buckets[:]),
		P50: float64(h.quantile(0.5)), P99: float64(h.quantile(0.99)), P999: float64(h.quantile(0.999)), Max: float64(h.Longest),
	}
	for _, q := range []float64{0, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9998, 0.9999, 0.99999} {
		if float64(d.Count)*(1-q) < 1 {
			break // there are too few for it to mean anything
		}
		d.Points = append(d.Points, chart.Point{X: q, Y: float64(max(h.quantile(q), 1))})
	}
	return d
}

// contestant is a variant with what it did in the rounds.
type contestant struct {
	name string
	kind chart.Kind
	*tally
}

// withoutClient leaves out of a variant's name which client it is: a chart of many has no room for it.
func withoutClient(name string) string {
	name, _, _ = strings.Cut(name, " (")
	return name
}

// contest adds what is to be drawn of variants that contend. The first one is ours.
func (r *result) contest(name, what string, list []contestant) {
	bars := chart.Bars{
		Head: chart.Head{
			Name: name + "-rates", Title: "Critical sections per second, " + what,
			About: "A bar for each lock, on a logarithmic scale: the median of the rounds, and between what they varied.",
		},
		Unit: "/s", Scale: chart.Log,
	}
	for i, c := range list {
		bars.Rows = append(bars.Rows, bar(c.name, c.kind, c.rates))
		if c.kind != chart.Floor || c.waits.Longest > 0 { // a floor may have nothing to wait for
			r.distributions = append(r.distributions, c.waits.distribution(c.name, c.kind))
		}
		if i > 0 && c.kind == chart.Rival {
			r.versus = append(r.versus, against(what+", sections/s vs. "+withoutClient(c.name), perRound(list[0].rates, c.rates)))
		}
	}
	r.figures = append(r.figures, figure{Bars: &bars})
	r.compare(list)
}
