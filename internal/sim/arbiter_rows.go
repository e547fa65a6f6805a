package sim

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/fallback"
)

// Rows implements [fallback.Lister]: processes clean up the rows that others have left.
func (n *space) Rows(ctx context.Context, p []uint32) ([]map[string]fallback.Row, error) {
	type rows struct {
		of  map[string]fallback.Row
		err error
	}
	all := make([]map[string]fallback.Row, len(p))
	var errs []error
	for i, x := range each(n.c, ctx, p, func(p uint32) uint32 { return p },
		func(err error) rows { return rows{err: err} },
		func(ctx context.Context, p []uint32) []rows {
			return parted(n, p, func(p uint32) uint32 { return p }, func(at fallback.Namespace, p []uint32) []rows {
				some, err := at.(fallback.Lister).Rows(ctx, p)
				answers := make([]rows, len(p))
				for i := range answers {
					if answers[i].err = err; err == nil {
						answers[i].of = some[i]
					}
				}
				return answers
			})
		}) {
		all[i], errs = x.of, append(errs, x.err)
		for key, row := range x.of {
			n.seen.Store(fallback.Release{Partition: p[i], Key: key, Identity: row.Identity}, &n.c.w.cleaned)
		}
	}
	return all, errors.Join(errs...)
}

// Waiters implements [fallback.WaiterLister].
func (n *space) Waiters(ctx context.Context, p uint32, key string, most int) ([]fallback.Release, error) {
	return about(n.c, ctx, p, func(ctx context.Context) ([]fallback.Release, error) {
		at, _ := n.about(p)
		all, err := at.(fallback.WaiterLister).Waiters(ctx, p, key, most)
		for _, r := range all {
			n.seen.Store(r, &n.c.w.dequeued)
		}
		return all, err
	})
}

// Prompt implements [fallback.Prompter]. In every third run the client library is one that needs
// another goroutine.
func (n *space) Prompt() bool { return n.c.w.cfg.Seed%3 > 0 }

// cleans counts the process's releases for other sessions, of holds that Rows or Waiters told it
// of.
func (n *space) cleans(all []fallback.Release) {
	for _, r := range all {
		if _, mine := n.mine.Load(r.Session); mine {
			continue
		}
		if told, ok := n.seen.LoadAndDelete(r); ok {
			told.(*atomic.Int64).Add(1)
		}
	}
}
