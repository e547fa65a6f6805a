// Command overhead measures the costs of metrics and spans for the owner of a key. One process runs
// the same locks by turns, without them and with each kind of them, which is scraped or collected
// every second:
//
//	go run ./internal/overhead
//
// It fails if an owner's path with metrics takes more than 5 % more processor time than without,
// scrapes included. Its time by the clock depends on the machine's load: the second row without
// metrics shows by how much.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// most is how much slower the owner's path may be with metrics.
const most = 1.05

// slices of a round: each variant runs for one slice after another, in turns, and is scraped in one
// of them. So it is scraped once in each second that it runs.
const (
	perRound = 10
	slice    = 100 * time.Millisecond
)

func main() {
	rounds := flag.Int("rounds", 20, "rounds, in each of which every variant runs every work for a second")
	flag.Parse()
	if err := run(*rounds); err != nil {
		fmt.Fprintln(os.Stderr, "overhead:", err)
		os.Exit(1)
	}
}

func run(rounds int) error {
	all, done, err := open()
	if err != nil {
		return err
	}
	defer done()
	fmt.Printf("%d rounds of %v for each variant and work, by turns of %v; %v, GOMAXPROCS %d\n",
		rounds, perRound*slice, slice, runtime.Version(), runtime.GOMAXPROCS(0))
	var over error
	for _, w := range works {
		fmt.Printf("\n%s\n", w.name)
		table := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
		fmt.Fprintln(table, "variant\tns\ttimes without\t(middle half)\tprocessor time\t(middle half)")
		results, err := measure(all, w, rounds)
		if err != nil {
			return err
		}
		for i, r := range results {
			wall, used := ratios(r, results[0], (*sum).perWall), ratios(r, results[0], (*sum).perUsed)
			fmt.Fprintf(table, "%s\t%.0f\t%.3f\t%.3f..%.3f\t%.3f\t%.3f..%.3f\n", all[i].name, quantile(each(r, (*sum).perWall), 0.5),
				quantile(wall, 0.5), quantile(wall, 0.25), quantile(wall, 0.75), quantile(used, 0.5), quantile(used, 0.25), quantile(used, 0.75))
			if x := quantile(used, 0.5); w.owner && all[i].metrics && x > most {
				over = fmt.Errorf("%s: %s takes %.3f times the processor time, which is more than %.2f", w.name, all[i].name, x, most)
			}
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	return over
}

// A sum is a variant's operations in a round, and their time.
type sum struct {
	n          int
	wall, used time.Duration
}

func (s *sum) perWall() float64 { return float64(s.wall) / float64(s.n) }
func (s *sum) perUsed() float64 { return float64(s.used) / float64(s.n) }

// measure runs a work in all variants, and returns the sum of each in each round. The first round
// is not counted.
func measure(all []*variant, w work, rounds int) ([][]sum, error) {
	n := 1
	for took := time.Duration(0); took < slice/2; n *= 2 { // so many take a slice
		start := time.Now()
		if err := w.run(all[0], n); err != nil {
			return nil, err
		}
		took = time.Since(start)
	}
	results := make([][]sum, len(all))
	for round := range rounds + 1 {
		sums := make([]sum, len(all))
		for turn := range perRound {
			for j := range all {
				i := (j + round + turn) % len(all)
				if err := all[i].slice(&sums[i], w, n, turn == perRound/2); err != nil {
					return nil, fmt.Errorf("%s: %w", all[i].name, err)
				}
			}
		}
		for i := range all {
			if round > 0 {
				results[i] = append(results[i], sums[i])
			}
		}
	}
	return results, nil
}

// slice runs a work n times, and beside it a scrape.
func (v *variant) slice(s *sum, w work, n int, scrape bool) error {
	done := make(chan error, 1)
	used, start := processorTime(), time.Now()
	if scrape && v.scrape != nil {
		go func() { done <- v.scrape(context.Background()) }()
	} else {
		done <- nil
	}
	if err := w.run(v, n); err != nil {
		return err
	}
	s.wall += time.Since(start)
	err := <-done
	s.used += processorTime() - used
	s.n += n
	return err
}

func each(all []sum, f func(*sum) float64) (x []float64) {
	for i := range all {
		x = append(x, f(&all[i]))
	}
	return x
}

// ratios are those of each round to the other variant in the same round.
func ratios(all, to []sum, f func(*sum) float64) (x []float64) {
	for i := range all {
		x = append(x, f(&all[i])/f(&to[i]))
	}
	return x
}

// quantile returns the value that a part q of the sample does not exceed.
func quantile(sample []float64, q float64) float64 {
	s := slices.Sorted(slices.Values(sample))
	return s[min(int(q*float64(len(s))), len(s)-1)]
}
