// Package held is how a context tells package coord which locks its caller holds. Contexts of
// package coord and of package middleware answer Value for Key with a value that tells its lock and
// the next outer context. Under makes the context of what runs with a lock.
package held

// Key is the key of the innermost lock that a context carries.
type Key struct{}
