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

// measureValue is one figure: the median of the rounds, and their least and most. Null was not
// measured.
type measureValue struct {
	Name   string `json:"name"`
	Unit   string `json:"unit"`
	Median value  `json:"median"`
	Least  value  `json:"least"`
	Most   value  `json:"most"`
	// Of the same figure in the same round, the median of the rounds: times that of the rival that
	// is best in it, and times the floor.
	ToBest  value  `json:"to_best"`
	Best    string `json:"best,omitempty"`
	ToFloor value  `json:"to_floor"`
	Floor   string `json:"floor,omitempty"`
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
	var base *Contestant
	if i := slices.IndexFunc(all, func(c Contestant) bool { return c.Name == floor }); i >= 0 {
		base = &all[i]
	}
	for _, c := range some {
		x := measured{Name: c.Name, Kind: c.Kind}
		for _, m := range stats.Metrics {
			sample := c.Sample(m)
			s := stats.SpreadOf(sample)
			v := measureValue{Name: m.Name, Unit: m.Unit, Median: value(s.Median), Least: value(s.Least), Most: value(s.Most)}
			// times are those of another one, which has a name if there are any.
			times := func(other *Contestant) (value, string) {
				if other == nil {
					return value(math.NaN()), ""
				}
				x := value(stats.Median(stats.PerRound(sample, other.Sample(m))))
				if !x.known() {
					return value(math.NaN()), ""
				}
				return x, other.Name
			}
			v.ToBest, v.Best = times(bestRival(m, all))
			v.ToFloor, v.Floor = times(base)
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

// spreads returns a table of all figures: for each way to lock the medians, the least and the most
// of the rounds, and the ratios.
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
			texts := []string{v.text(v.Median), v.between(), v.ToBest.String(), v.ToFloor.String()}
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

func (v measureValue) text(x value) string {
	if x.known() && v.Unit == stats.Nanoseconds {
		return stats.Format(float64(x), v.Unit)
	}
	return x.String()
}

// between is empty of a figure that was not measured.
func (v measureValue) between() string {
	if !v.Least.known() {
		return "-"
	}
	return v.text(v.Least) + ".." + v.text(v.Most)
}
