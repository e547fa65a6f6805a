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

// impatient: a process holds a lock on and on, and callers of others give up before a wait is long,
// as those behind a middleware do.
func impatient(ctx context.Context, w *world) (err error) {
	const key = "cart/77"
	holder, others := w.nodes[3], w.nodes[1]
	defer func() { err = errors.Join(err, holder.stop(ctx), others.stop(ctx)) }()
	if err := holder.tell(ctx, task{Do: "hold", Key: key, Label: "checkout"}); err != nil {
		return err
	}
	if err := others.tell(ctx, task{Do: "hammer", Key: key, Label: "checkout", Callers: 3, Waits: w.longWait() / 2}); err != nil {
		return err
	}
	const held, failed = "holdfast_lock_longest_wanted_hold_seconds", `holdfast_lock_wait_failed_total{reason="locked"}`
	return together(ctx,
		w.doctor(line{"WARN", key, "has been held for", "dora", "checkout", "may have given up"}),
		w.nodes[0].shows(line{"ey", key, "callers may have given up", "held by dora", "checkout"}),
		holder.measures(held, func(s samples) float64 { return s[held] }, w.longWait().Seconds()),
		others.measures(failed, func(s samples) float64 { return s[failed] }, 2),
		w.alerts("HoldfastHeld", "dora"),
	)
}
