package periodic

import (
	"context"
	"time"
)

// WithClock makes Run go by another clock.
func WithClock(ctx context.Context, clock func() time.Time) context.Context {
	return context.WithValue(ctx, clockKey{}, clock)
}

// LastTick is lastTick.
var LastTick = lastTick
