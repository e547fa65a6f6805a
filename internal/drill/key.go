//go:build linux

package main

import (
	"context"
	"errors"
)

// wrongKey: a process has another key in Cluster.PeerKeys than the others.
func wrongKey(ctx context.Context, w *world) (err error) {
	last := len(w.nodes) - 1
	odd := names[last]
	if err := errors.Join(w.nodes[last].leave(), w.replace(last, [][]byte{newKey()})); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.nodes[last].leave(), w.replace(last, w.keys)) }()
	const refused = `holdfast_node_count{state="refused"}`
	count := func(s samples) float64 { return s[refused] }
	return together(ctx,
		w.doctor(line{"FAIL", "node " + odd, "it has another key in Cluster.PeerKeys"},
			line{"FAIL", "node anna", "it and " + odd + " refuse each other", "none of the shared keys"}),
		w.prints([]string{"top"}, line{"NOT ASKED: " + odd, "none of the shared keys"}),
		w.nodes[0].shows(line{"anna", odd, "refuse each other", "none of the shared keys"}),
		w.nodes[last].shows(line{odd, "anna", "refuse each other", "none of the shared keys"}),
		w.nodes[0].measures(refused, count, 0),
		w.nodes[last].measures(refused, count, 3),
		w.alerts("HoldfastRefused", "anna"),
		w.alerts("HoldfastRefused", odd),
		w.plots("Nodes without a stream: 0 is well", "state", "refused", 3),
	)
}
