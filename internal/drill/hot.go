//go:build linux

package main

import (
	"context"
	"errors"
	"strings"
	"time"
)

// hotKey: callers of all nodes want one key all the time, each for a moment.
func hotKey(ctx context.Context, w *world) (err error) {
	const key = "sku/4711"
	defer func() {
		for _, n := range w.nodes {
			err = errors.Join(err, n.stop(ctx))
		}
	}()
	before, err := w.nodes[0].scrape(ctx)
	if err != nil {
		return err
	}
	for _, n := range w.nodes {
		if err := n.tell(ctx, task{Do: "hammer", Key: key, Label: "checkout", Callers: 14, Hold: 20 * time.Millisecond}); err != nil {
			return err
		}
	}
	hot := line{"ey", key, "is hot", "callers wait for it"}
	return together(ctx,
		w.doctor(append(line{"WARN"}, hot...)),
		w.prints([]string{"top", "-n", "1", "--by", "waiters"}, line{key}),
		w.prints([]string{"top", "-n", "1", "--by", "taken"}, line{key}),
		w.nodes[0].shows(hot),
		w.nodes[0].measures("waits of class sku, which has most of the waits,", func(s samples) float64 {
			const waits = `holdfast_lock_class_wait_duration_seconds_count{`
			now, hot, others := s.since(before), 0.0, 0.0
			for series, n := range now {
				switch {
				case !strings.HasPrefix(series, waits):
				case strings.Contains(series, `class="sku"`):
					hot += n
				default:
					others += n
				}
			}
			if hot <= others {
				return 0
			}
			return hot
		}, 20),
		w.plots("Waits by class of the key (NewWaits)", "class", "sku", 1),
		w.plots("Keys locked and kept, callers waiting", "state", "waiting", 49),
	)
}
