package coordtest

import (
	"context"

	"github.com/holdfast-go/holdfast/fallback"
)

// WithoutResults returns an arbiter that keeps no results, as all but that of Redis and the one in
// memory. Its namespace implements [fallback.Namespace], and nothing else.
func WithoutResults(a fallback.Arbiter) fallback.Arbiter { return plain{a} }

type plain struct{ fallback.Arbiter }

// Attach implements [fallback.Arbiter].
func (p plain) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := p.Arbiter.Attach(ctx, s)
	if err != nil {
		return nil, err
	}
	return struct{ fallback.Namespace }{n}, nil
}
