//go:build linux

package main

import (
	"context"
	"errors"
)

// slowRedis: another program sends the server commands that take long, one after another.
func slowRedis(ctx context.Context, w *world) (err error) {
	n := w.nodes[2]
	before, err := n.scrape(ctx)
	if err != nil {
		return err
	}
	slow, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		for slow.Err() == nil {
			if err := w.client.Do(slow, "DEBUG", "SLEEP", "0.4").Err(); err != nil && slow.Err() == nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	const took = "holdfast_arbiter_call_duration_seconds"
	return together(ctx,
		w.doctor(line{"WARN", "arbiter", w.server.Addr, "answers in"}, line{"WARN", "node", "the arbiter is slow", "took"}),
		w.prints([]string{"top"}, line{"! Node", "the arbiter is slow", "took"}),
		n.shows(line{"the arbiter is slow", "took"}),
		n.measures("the 99th percentile of "+took, func(s samples) float64 { return s.since(before).quantile(0.99, took) }, 0.25),
		w.alerts("HoldfastArbiterSlow", "clara"),
		w.plots("Calls of the arbiter", "", "", 0.25),
	)
}
