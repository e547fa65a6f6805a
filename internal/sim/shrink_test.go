package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// tries is how often a smaller run is made until it is believed to be free of the failure.
// Goroutines that run at the same moment are not in the seed's hands.
const tries = 3

// shrink looks for a smaller run that fails in the same way, for a while: fewer faults first, then
// fewer clients, keys and nodes, and clocks that all run alike.
func shrink(t *testing.T, cfg Config, r Result, limit time.Duration) (Config, Result) {
	begin := time.Now()
	if cfg.Plan == nil {
		cfg.Plan = cfg.plan()
	}
	fails := func(c Config) bool {
		for range tries {
			if time.Since(begin) > limit {
				return false
			}
			if got := simulate(t, c); len(got.Bad) > 0 && class(got) == class(r) {
				cfg, r = c, got
				return true
			}
		}
		return false
	}
	for size := max(1, len(cfg.Plan)/2); ; size /= 2 {
		for at := 0; at < len(cfg.Plan); {
			c := cfg
			c.Plan = slices.Delete(slices.Clone(cfg.Plan), at, min(at+size, len(cfg.Plan)))
			if !fails(c) {
				at += size
			}
		}
		if size == 1 {
			break
		}
	}
	for _, smaller := range []func(*Config) bool{
		func(c *Config) bool { c.Drift = 0; return cfg.Drift != 0 },
		func(c *Config) bool { c.Keys = (c.Keys + 1) / 2; return cfg.Keys > 1 },
		func(c *Config) bool { c.Clients = (c.Clients + 1) / 2; return cfg.Clients > 1 },
		func(c *Config) bool {
			c.Nodes--
			return c.Nodes > 1 && !slices.ContainsFunc(c.Plan, func(f Fault) bool { return max(f.Node, f.Other) >= c.Nodes })
		},
	} {
		for {
			c := cfg
			if !smaller(&c) || !fails(c) {
				break
			}
		}
	}
	return cfg, r
}

// class returns the kind of a failure, without the particulars: its time is a number, and then
// comes a word.
func class(r Result) string {
	_, what, _ := strings.Cut(strings.TrimSpace(r.Bad[0]), " ")
	word, _, _ := strings.Cut(strings.TrimSpace(what), " ")
	if strings.HasSuffix(word, ":") { // an invariant
		return word
	}
	return ""
}

// tell returns a run's events in order, up to the first failure, and then all failures.
func tell(cfg Config, r Result) string {
	var b strings.Builder
	c := cfg
	c.Plan = nil
	fmt.Fprintf(&b, "seed %d, %d nodes with %d clients each, %d keys, T = %v, clocks differ by %.1f%%\n", c.Seed, c.Nodes, c.Clients, c.Keys, c.TTL, 200*c.Drift)
	type line struct {
		at   float64
		text string
	}
	var lines []line
	for _, s := range r.Story {
		var at float64
		_, _ = fmt.Sscanf(s, "%fs", &at)
		lines = append(lines, line{at, s})
	}
	at := 1e9
	_, _ = fmt.Sscanf(r.Bad[0], "%fs", &at)
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	for _, l := range lines {
		if l.at <= at {
			fmt.Fprintln(&b, l.text)
		}
	}
	for _, s := range r.Bad {
		fmt.Fprintln(&b, s)
	}
	return b.String()
}
