//go:build linux

package main

import (
	"context"
	"errors"
)

// stuckHolder: a process holds a lock on and on, and callers of others wait for it.
func stuckHolder(ctx context.Context, w *world) (err error) {
	const key = "order/8123"
	holder, waiter := w.nodes[3], w.nodes[1]
	defer func() { err = errors.Join(err, holder.stop(ctx), waiter.stop(ctx)) }()
	if err := holder.tell(ctx, task{Do: "hold", Key: key, Label: "nightly export"}); err != nil {
		return err
	}
	if err := waiter.tell(ctx, task{Do: "wait", Key: key, Label: "checkout", Callers: 3}); err != nil {
		return err
	}
	const longest = "holdfast_lock_longest_wait_seconds"
	return together(ctx,
		w.doctor(line{"WARN", "3 callers wait for key", key, "held by dora", "nightly export"}),
		w.prints([]string{"top", "--by", "wait"}, line{key, "dora", "nightly export", " 3 "}),
		w.prints([]string{"inspect", key}, line{"held by dora", "nightly export"}, line{"to free it: holdfast break", key}),
		w.nodes[0].shows(line{"key", key, "held by dora", "nightly export"}),
		waiter.measures(longest, func(s samples) float64 { return s[longest] }, w.longWait().Seconds()),
		w.alerts("HoldfastStuck", "berta"),
		w.plots("Longest wait of now, by instance", "instance", "berta", w.longWait().Seconds()),
	)
}
