//go:build linux

package main

import (
	"context"
	"errors"
	"strings"
)

// fullMemory: the server is at maxmemory, and a node leaves meanwhile: no other can have its
// partitions.
func fullMemory(ctx context.Context, w *world) (err error) {
	last := len(w.nodes) - 1
	if err := w.client.ConfigSet(ctx, "maxmemory", "100kb").Err(); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, w.client.ConfigSet(context.WithoutCancel(ctx), "maxmemory", "0").Err(), w.replace(last, w.keys))
	}()
	if err := w.nodes[last].leave(); err != nil {
		return err
	}
	n := w.nodes[0]
	return together(ctx,
		w.doctor(line{"FAIL", "memory", "bytes are used, maxmemory-policy noeviction"},
			line{"WARN", "node", "calls of the arbiter fail", "the server has reached maxmemory"}, line{"WARN", "partitions have no owner"}),
		w.prints([]string{"top"}, line{"! Node", "calls of the arbiter fail", "the server has reached maxmemory"}),
		n.shows(line{"calls of the arbiter fail", "the server has reached maxmemory"}),
		n.measures("calls that failed as the server is full", func(s samples) (sum float64) {
			for series, v := range s {
				if strings.HasPrefix(series, "holdfast_arbiter_call_failed_total{") && strings.Contains(series, `reason="full"`) {
					sum += v
				}
			}
			return sum
		}, 0),
		w.alerts("HoldfastArbiterFull", "anna"),
		w.plots("Calls of the arbiter that failed", "reason", "full", 0),
	)
}
