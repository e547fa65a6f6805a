package subjects

import (
	"maps"
	"slices"

	"github.com/holdfast-go/holdfast/bench/stats"
	"github.com/holdfast-go/holdfast/internal/figures"
)

// curve is what was measured, in rounds, at some values of what it depends on.
type curve map[int][]float64

// at returns the values in their order.
func (c curve) at() []int { return slices.Sorted(maps.Keys(c)) }

// times is what was measured at one value, in times of that at another, in each round.
func (c curve) times(at, other int) []float64 { return stats.PerRound(c[at], c[other]) }

// last is the greatest value.
func (c curve) last() int { return slices.Max(c.at()) }

// rows are lines of a table: name, at which value, median, spread, and in times of the first.
func (c curve) rows(name string) (rows [][]string) {
	at := c.at()
	for _, x := range at {
		rows = append(rows, slices.Concat([]string{name, figures.Thousands(int64(x))}, stats.SpreadOf(c[x]).Cells(),
			[]string{stats.Number(stats.Median(c.times(x, at[0])))}))
		name = ""
	}
	return rows
}

// upTo returns 1, base, base squared and so on, and most.
func upTo(most, base int) (list []int) {
	for n := 1; n < most; n *= base {
		list = append(list, n)
	}
	return append(list, most)
}
