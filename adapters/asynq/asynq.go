// Package asynq is a middleware for github.com/hibiken/asynq that processes tasks about the same
// thing one after another, in all servers together.
package asynq

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/turn"
	"github.com/holdfast-go/holdfast/internal/unit"
)

// Options are the options of [Serialize].
type Options struct {
	// Wait is the longest wait of a task for its lock: then it fails, and is tried again later, as
	// asynq does it. A task that waits occupies a worker. Default 10 s; at least 1 ms. Negative:
	// until the task's own deadline.
	Wait time.Duration
}

// Serialize returns a middleware that calls the handler with the lock of the task's key. key
// returns "" for tasks that need no lock. The handler's context ends if the lock is lost, with that
// as its cause, and carries the lock.
//
// asynq takes a task for lost after its server has crashed, and gives it to another one after a
// lease of 30 s. That is longer than the session of a lock, so the lock is free when the task comes
// again.
func Serialize(c *coord.Coordinator, key func(context.Context, *asynq.Task) string, opts *Options) (asynq.MiddlewareFunc, error) {
	if c == nil || key == nil {
		return nil, errors.New("asynq: the coordinator or the key function is nil")
	}
	wait := 10 * time.Second
	if opts != nil && opts.Wait != 0 {
		wait = opts.Wait
	}
	if err := unit.Check("asynq: Options.Wait", wait, time.Millisecond, "10 * time.Second"); err != nil {
		return nil, err
	}
	return func(h asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			k := key(ctx, t)
			if k == "" {
				return h.ProcessTask(ctx, t)
			}
			_, err := turn.Do(ctx, c, k, wait, func(ctx context.Context) error { return h.ProcessTask(ctx, t) })
			return err
		})
	}, nil
}
