package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/held"
)

// Run campaigns, and calls fn when this process is the leader, again for each term. fn's context
// ends with ctx, and also when the term is lost, with that as its cause. fn has to heed it: the
// leadership is handed over when fn has returned. So a process that is told to stop ends ctx, and
// its successor leads as soon as fn has returned.
//
// Run campaigns again after Options.Pause if fn returns an error, so that another candidate may do
// better, and at once if the term was lost. It ends
//
//   - with nil, when fn returns nil in a term that is in force: the work is done;
//   - when ctx ends: with nil, or with an error of fn that is not due to that;
//   - with an error that campaigning again does not mend: [coord.ErrClosed], [coord.ErrHeld],
//     [coord.ErrObserver], [coord.ErrNoResults].
//
// A panic of fn passes through, after the resignation.
func (e *Election) Run(ctx context.Context, fn func(ctx context.Context, t *Term) error) error {
	for {
		t, err := e.Campaign(ctx)
		switch {
		case ctx.Err() != nil && err != nil:
			return nil
		case isFinal(err):
			return err
		case err != nil:
			e.opts.Logger.Warn("holdfast: a campaign failed, and begins again", "election", e.name, "error", err)
			pause(ctx, e.opts.Pause)
			continue
		}
		lost, err := t.serve(ctx, fn)
		switch {
		case ctx.Err() != nil:
			if errors.Is(err, context.Cause(ctx)) || errors.Is(err, ctx.Err()) || lost {
				return nil
			}
			return err
		case lost:
			e.opts.Logger.Warn("holdfast: a leader has lost its term, and campaigns again", "election", e.name, "fence", t.Fence(), "error", t.lossOf(err))
		case err == nil:
			return nil
		default:
			e.opts.Logger.Warn("holdfast: a leader's function failed, and campaigns again", "election", e.name, "fence", t.Fence(), "error", err)
			pause(ctx, e.opts.Pause)
		}
	}
}

// isFinal reports whether another attempt fails, too.
func isFinal(err error) bool {
	return errors.Is(err, coord.ErrClosed) || errors.Is(err, coord.ErrHeld) || errors.Is(err, coord.ErrInvalidKey) ||
		errors.Is(err, coord.ErrObserver) || errors.Is(err, coord.ErrNoResults)
}

// serve calls fn, and resigns.
func (t *Term) serve(ctx context.Context, fn func(ctx context.Context, t *Term) error) (lost bool, err error) {
	both, end := held.Inside(ctx, t.Context())
	defer end(nil)
	defer func() {
		bye, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		lost = errors.Is(t.Resign(bye), coord.ErrLost)
	}()
	return false, fn(both, t)
}

// lossOf returns the cause of the term's loss, with the function's error if that says more.
func (t *Term) lossOf(err error) error {
	cause := context.Cause(t.Context())
	if err == nil || errors.Is(err, coord.ErrLost) || errors.Is(err, context.Canceled) {
		return cause
	}
	return fmt.Errorf("%w; its function: %w", cause, err)
}

// pause waits, until ctx ends at most.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
