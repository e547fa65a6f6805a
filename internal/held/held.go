// Package held lets a context tell package coord the locks that its caller holds. Contexts of
// package coord and of package middleware answer Value for Key with a value that tells its lock and
// the next outer context. Under makes the context of a function that runs with a lock.
package held

import "context"

// Key is the key of the innermost lock that a context carries.
type Key struct{}

// Task is the key of the task that a context belongs to: see coord.WithLocker.
type Task struct{}

// Apart returns the context of a goroutine that takes locks beside its caller: it carries none, and
// belongs to no task. Otherwise it is ctx.
func Apart(ctx context.Context) context.Context { return apart{ctx} }

type apart struct{ context.Context }

func (x apart) Value(key any) any {
	switch key {
	case Key{}, Task{}:
		return nil
	}
	return x.Context.Value(key)
}
