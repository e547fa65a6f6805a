// Package asynq is a middleware for github.com/hibiken/asynq that processes tasks about the same thing
// one after another, in all servers together.
package asynq

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/coord"
)

// Options are the options of [Serialize].
type Options struct {
	// Wait is how long a task waits for its lock before it fails, and is tried again later, as asynq
	// does it. A task that waits occupies a worker. Default 10 s. Negative: until the task's own
	// deadline.
	Wait time.Duration
}

// Serialize returns a middleware that calls the handler with the lock of the task's key. key returns ""
// for tasks that need no lock. The handler's context ends if the lock is lost, with that as its cause,
// and carries the lock.
//
// asynq takes a task for lost after its server has crashed, and gives it to another one after a lease
// of 30 s, which is longer than the session of a lock. So the lock is free when the task comes again.
func Serialize(c *coord.Coordinator, key func(context.Context, *asynq.Task) string, opts *Options) (asynq.MiddlewareFunc, error) {
	if c == nil || key == nil {
		return nil, errors.New("asynq: the coordinator or the key function is nil")
	}
	wait := 10 * time.Second
	if opts != nil && opts.Wait != 0 {
		wait = opts.Wait
	}
	return func(h asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) (err error) {
			k := key(ctx, t)
			if k == "" {
				return h.ProcessTask(ctx, t)
			}
			limit := ctx
			if wait > 0 {
				var cancel context.CancelFunc
				limit, cancel = context.WithTimeout(ctx, wait)
				defer cancel()
			}
			l, err := c.Lock(limit, k)
			if err != nil {
				return err
			}
			defer func() {
				if lost := l.Unlock(); errors.Is(lost, coord.ErrLost) && !errors.Is(err, coord.ErrLost) {
					err = errors.Join(err, lost)
				}
			}()
			held, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			lock := l.Context()
			defer context.AfterFunc(lock, func() { cancel(context.Cause(lock)) })()
			return h.ProcessTask(section{held, lock}, t)
		})
	}, nil
}

// section is the task's context, which ends with the lock as well. Values are looked for in the lock's
// context, which has those of the task's, and the lock.
type section struct {
	context.Context
	lock context.Context
}

func (s section) Value(key any) any {
	if v := s.Context.Value(key); v != nil {
		return v
	}
	return s.lock.Value(key)
}
