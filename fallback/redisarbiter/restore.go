package redisarbiter

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// Restore implements [HoldStore].
func (n *redisSpace) Restore(ctx context.Context, claims []fallback.Claims) []fallback.Restored {
	answers := make([]fallback.Restored, len(claims))
	var batch []call
	var of, size []int // of each call: which claims, how many holds
	for i, c := range claims {
		for holds := range slices.Chunk(c.Holds, fallback.MaxClaims) {
			args := make([]any, 1, 1+3*len(holds))
			args[0] = ""
			for _, h := range holds {
				args = append(args, h.Key, h.Owned, h.Row.Encode())
			}
			batch = append(batch, call{scriptRestore, []string{n.part(c.Partition)}, args})
			of, size = append(of, i), append(size, len(holds))
		}
	}
	for i, o := range n.runAll(ctx, batch) {
		verdicts, grace, err := o.restored(size[i])
		a := &answers[of[i]]
		switch {
		case a.Err != nil:
		case err != nil:
			*a = fallback.Restored{Err: err}
		default:
			a.Verdicts, a.Grace = append(a.Verdicts, verdicts...), max(a.Grace, grace)
		}
	}
	return answers
}

// ReclaimOwners implements [HoldStore].
func (n *redisSpace) ReclaimOwners(ctx context.Context, me string, owned []fallback.Ownership) []fallback.Reclaimed {
	batch := make([]call, len(owned))
	for i, x := range owned {
		batch[i] = call{scriptOwner, []string{n.part(x.Partition)}, []any{"", me, x.Epoch}}
	}
	answers := make([]fallback.Reclaimed, len(owned))
	for i, o := range n.runAll(ctx, batch) {
		if answers[i].Err = o.err; o.err == nil {
			r := reader{v: list(o.v)}
			grace := r.record().Grace
			answers[i] = fallback.Reclaimed{Verdict: r.verdict(), Grace: grace, Err: r.err}
		}
	}
	return answers
}

// restored reads the answer of restore.lua about n holds.
func (o outcome) restored(n int) (verdicts []fallback.Verdict, grace time.Duration, err error) {
	if o.err != nil {
		return nil, 0, o.err
	}
	r := reader{v: list(o.v)}
	text := r.str(recordLen)
	grace = r.record().Grace
	if r.verdict(); r.err != nil || len(text) != n {
		return nil, 0, fmt.Errorf("fallback: a script answered %v about %d holds", o.v, n)
	}
	verdicts = make([]fallback.Verdict, n)
	for i := range verdicts {
		verdicts[i] = fallback.Lost
		if text[i] == '1' {
			verdicts[i] = fallback.Granted
		}
	}
	return verdicts, grace, nil
}
