package report

import (
	"math"
	"slices"

	"github.com/holdfast-go/holdfast/bench/chart"
	"github.com/holdfast-go/holdfast/bench/stats"
)

// measured is everything that was measured of one way to lock.
type measured struct {
	Name     string         `json:"name"`
	Kind     chart.Kind     `json:"kind"`
	Measures []measureValue `json:"measures"`
}

// measureValue is one figure: the median of the rounds, and between what they varied. What is null
// was not measured.
type measureValue struct {
	Name   string   `json:"name"`
	Unit   string   `json:"unit"`
	Median *float64 `json:"median"`
	Least  *float64 `json:"least"`
	Most   *float64 `json:"most"`
	// Of the same figure in the same round, the median of the rounds: times that of the rival that is
	// best in it, and times the floor.
	ToBest  *float64 `json:"to_best"`
	Best    string   `json:"best,omitempty"`
	ToFloor *float64 `json:"to_floor"`
	Floor   string   `json:"floor,omitempty"`
}

// known is nil for what JSON has no number for.
func known(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// Compare adds all figures of ways to lock that were measured in the same rounds. The floor is one
// of them, if there is any.
func (r *Result) Compare(list []Contestant) {
	floor := ""
	if i := slices.IndexFunc(list, func(c Contestant) bool { return c.Kind == chart.Floor }); i >= 0 {
		floor = list[i].Name
	}
	r.CompareTo(floor, list, list)
}

// CompareTo adds all figures of some, beside a floor and the best rival of all.
func (r *Result) CompareTo(floor string, some, all []Contestant) {
	for _, c := range some {
		x := measured{Name: c.Name, Kind: c.Kind}
		for _, m := range stats.Metrics {
			sample := c.Sample(m)
			s := stats.SpreadOf(sample)
			v := measureValue{Name: m.Name, Unit: m.Unit, Median: known(s.Median), Least: known(s.Least), Most: known(s.Most)}
			if best := bestRival(m, all); best != nil {
				if v.ToBest = known(stats.Median(stats.PerRound(sample, best.Sample(m)))); v.ToBest != nil {
					v.Best = best.Name
				}
			}
			if i := slices.IndexFunc(all, func(c Contestant) bool { return c.Name == floor }); i >= 0 {
				if v.ToFloor = known(stats.Median(stats.PerRound(sample, all[i].Sample(m)))); v.ToFloor != nil {
					v.Floor = floor
				}
			}
			x.Measures = append(x.Measures, v)
		}
		r.Measured = append(r.Measured, x)
	}
}

// bestRival is the one with the best median of a figure, nil if none has any.
func bestRival(m stats.Metric, list []Contestant) (best *Contestant) {
	least := math.NaN()
	for i, c := range list {
		x := stats.Median(c.Sample(m))
		if c.Kind == chart.Rival && !math.IsNaN(x) && (best == nil || m.More && x > least || !m.More && x < least) {
			best, least = &list[i], x
		}
	}
	return best
}

// spreads is a table of all figures: for each way to lock the medians, between what the rounds
// varied, and the ratios.
func spreads(list []measured) (table [][]string) {
	if len(list) == 0 {
		return nil
	}
	head := []string{"median of rounds, least..most, ratios"}
	for _, m := range stats.Metrics {
		head = append(head, m.Head)
	}
	table = append(table, head)
	for _, x := range list {
		rows := [][]string{{x.Name}, {"  least..most"}, {"  to the best rival"}, {"  to the floor"}}
		some := make([]bool, len(rows))
		for _, v := range x.Measures {
			texts := []string{v.text(v.Median), v.between(), optional(v.ToBest), optional(v.ToFloor)}
			for i, text := range texts {
				rows[i] = append(rows[i], text)
				some[i] = some[i] || text != "-"
			}
		}
		for i, row := range rows {
			if some[i] || i == 0 {
				table = append(table, row)
			}
		}
	}
	return table
}

func (v measureValue) text(x *float64) string {
	switch {
	case x == nil:
		return "-"
	case v.Unit == chart.Nanoseconds:
		return chart.Format(*x, v.Unit)
	}
	return stats.Number(*x)
}

// between is empty of a figure that did not vary.
func (v measureValue) between() string {
	if v.Least == nil || v.Most == nil {
		return "-"
	}
	return v.text(v.Least) + ".." + v.text(v.Most)
}

func optional(x *float64) string {
	if x == nil {
		return "-"
	}
	return stats.Number(*x)
}
