package debug

import (
	"context"

	"github.com/holdfast-go/holdfast/coord"
)

// LookAt is Look at so many nodes at most.
func LookAt(ctx context.Context, locks *coord.Coordinator, most int) *Overview {
	var o Overview
	o.ask(ctx, locks, most)
	o.judge(longWait)
	return &o
}
