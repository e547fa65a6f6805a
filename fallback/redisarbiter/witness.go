package redisarbiter

import (
	"context"

	"github.com/holdfast-go/holdfast/fallback"
)

func (n *redisSpace) Witness(ctx context.Context, p uint32, seen fallback.Token) (fallback.Record, error) {
	v, err := n.run(ctx, scriptWitness, []string{n.part(p)}, "", seen.Epoch(), seen.Seq())
	if err != nil {
		return fallback.Record{}, err
	}
	r := reader{v: list(v)}
	return r.record(), r.err
}
