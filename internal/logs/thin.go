package logs

import (
	"slices"
	"strings"
)

// Thin returns at most n of the records, in their order, which is that of time, the newest first.
// It leaves out the oldest ones of the messages that have the most. text returns a record's
// message, and its attributes as name=value behind it.
func Thin[T any](all []T, n int, text func(T) string) []T {
	if len(all) <= n {
		return all
	}
	type place struct{ at, newer int } // newer: how many newer records have the same message
	places, seen := make([]place, len(all)), make(map[string]int)
	for i, x := range all {
		message, _, _ := strings.Cut(text(x), "=") // with the first attribute's name
		places[i] = place{i, seen[message]}
		seen[message]++
	}
	slices.SortStableFunc(places, func(a, b place) int { return a.newer - b.newer })
	places = places[:n]
	slices.SortFunc(places, func(a, b place) int { return a.at - b.at })
	kept := make([]T, n)
	for i, p := range places {
		kept[i] = all[p.at]
	}
	return kept
}
