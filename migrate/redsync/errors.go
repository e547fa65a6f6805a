package redsync

import (
	"errors"
	"fmt"
)

var (
	// ErrFailed is returned by Lock if its context ended, or if there are no tries.
	ErrFailed = errors.New("redsync: failed to acquire lock")

	// ErrExtendFailed is not returned: it is there for code that compares with it.
	ErrExtendFailed = errors.New("redsync: failed to extend lock")

	// ErrLockAlreadyExpired is returned by Unlock if the lock is over. If it was lost, the error
	// matches [coord.ErrLost] as well.
	ErrLockAlreadyExpired = errors.New("redsync: failed to unlock, lock was already expired")
)

// ErrTaken is returned if the key is locked, and by Extend and Valid if the lock is over.
type ErrTaken struct { //nolint:errname // the name of the real library
	Nodes []int // always 0
}

// Error returns the text of the real library.
func (err ErrTaken) Error() string {
	return fmt.Sprintf("lock already taken, locked nodes: %v", err.Nodes)
}

// ErrNodeTaken is not returned: it is there for code that looks for it.
type ErrNodeTaken struct { //nolint:errname // the name of the real library
	Node int
}

// Error returns the text of the real library.
func (err ErrNodeTaken) Error() string { return fmt.Sprintf("node #%d: lock already taken", err.Node) }

// A RedisError is an error of the arbiter.
type RedisError struct {
	Node int // always 0
	Err  error
}

// Error returns the text of the real library.
func (e RedisError) Error() string { return fmt.Sprintf("node #%d: %s", e.Node, e.Err) }

// Unwrap returns Err.
func (e RedisError) Unwrap() error { return e.Err }

func taken() error { return &ErrTaken{Nodes: []int{0}} }
