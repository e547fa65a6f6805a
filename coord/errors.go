package coord

import (
	"errors"
	"fmt"
)

// Errors of Lock, TryLock and Do.
var (
	// ErrLocked: another caller has the key. TryLock returns it at once; the error of a Lock that
	// waited for the key until its ctx ended Is this and ctx.Err().
	ErrLocked = errors.New("coord: locked")

	// ErrUnavailable: the arbiter could not be asked, or may not grant anything now, as after a
	// failover. It is not known whether the key is free. The error of a Lock that waited for such a
	// reason until its ctx ended Is this and ctx.Err(); a Lock that the server refused returns it
	// at once, with the setting.
	ErrUnavailable = errors.New("coord: arbiter unavailable")

	// ErrHeld: the caller's context carries a lock of the key that is in force: it is the one that
	// Do or Lock.Context gave, or derives from it. The caller would wait for itself. Lock, TryLock,
	// Do and Share return it at once.
	ErrHeld = errors.New("coord: already held by the caller: its context is that of a lock of this key")

	// ErrDeadlock: callers wait for each other in a circle, and the caller is the youngest of them.
	// See DeadlockError, which errors.As finds, and Options.DeadlockAfter.
	ErrDeadlock = errors.New("coord: callers wait for each other in a circle")

	// ErrInvalidKey: a key must have 1 to 1024 bytes, and must not begin with NUL. It must not end
	// with NUL, letters, digits or slashes, NUL and 0xff.
	ErrInvalidKey = errors.New("coord: invalid key")

	// ErrClosed: the coordinator was closed.
	ErrClosed = errors.New("coord: closed")
)

// Errors of Unlock, and causes of a lock's context.
var (
	// ErrLost: the lock was lost before it was unlocked. Another caller may hold the key.
	ErrLost = errors.New("coord: lock lost")

	// ErrUnlocked: the lock had been unlocked before. As the cause of a lock's context: it was
	// unlocked.
	ErrUnlocked = errors.New("coord: already unlocked")
)

// Errors of Break.
var (
	// ErrNotHeld: no caller has the lock with that token, any more or at all.
	ErrNotHeld = errors.New("coord: no caller has the lock with that token")

	// ErrNotBroken: the process that has the lock does not permit it (Options.Unbreakable), is of
	// an older version, or could not be asked; or the owner of the key could not, or does not serve
	// its partition.
	ErrNotBroken = errors.New("coord: the lock was not broken")
)

// ErrNodeDead is the cause of a context that NodeContext has returned, once it has ended.
var ErrNodeDead = errors.New("coord: the node is dead: the arbiter says so of its last session")

// Errors of Share, besides those of Do.
var (
	// ErrNotShared: fn has returned a value, which is valid and returned beside the error, but
	// others may not get it.
	ErrNotShared = errors.New("coord: result not shared")

	// ErrTooLarge: the encoded result is larger than ShareOptions.MaxSize. It was not stored.
	ErrTooLarge = errors.New("coord: result too large")

	// ErrNoResults: the arbiter does not keep results, and the Store of the options is nil.
	ErrNoResults = errors.New("coord: the arbiter keeps no results")
)

// LossCause says why a lock was lost.
type LossCause uint8

// Causes of losses.
const (
	SessionExpired LossCause = iota + 1 // the session could not be renewed in time, its guardians' promises have passed, or the process stood still for too long
	LeaseExpired                        // neither the arbiter nor the key's owner confirmed the hold in time
	Superseded                          // the arbiter knows nothing of the lock any more, or gave the key to another
	CoordClosed                         // Close was called, and its ctx ended before the lock was unlocked
	TimeOver                            // the time that LockFor was given is over
	Broken                              // Break was called
)

var lossCauses = [...]string{"", "session expired", "lease expired", "superseded", "coordinator closed", "time over", "broken"}

// String returns the cause in words, such as "session expired".
func (c LossCause) String() string {
	if c > 0 && int(c) < len(lossCauses) {
		return lossCauses[c]
	}
	return fmt.Sprintf("LossCause(%d)", uint8(c))
}

// A LossError is an ErrLost with its reason: errors.Is(err, ErrLost) holds, and errors.As finds it.
type LossError struct {
	Key   string
	Fence Fence // of the lock that was lost
	Cause LossCause

	// Reason is that of Break, and the name of the process in which it was called. Empty with other
	// causes.
	Reason string
}

// Error returns key, token and cause, for logs.
func (e *LossError) Error() string {
	text := fmt.Sprintf("coord: lock %s lost (token %d): %v", quoted(e.Key), e.Fence, e.Cause)
	if e.Reason != "" {
		text += ": " + quoted(e.Reason)
	}
	return text
}

// Is makes errors.Is(e, ErrLost) true, and for CoordClosed errors.Is(e, ErrClosed) as well.
func (e *LossError) Is(target error) bool {
	return target == ErrLost || e.Cause == CoordClosed && target == ErrClosed
}

// A WaitError says why a lock was not obtained. By errors.Is it matches the reason: ErrLocked,
// ErrUnavailable, ErrHeld, ErrDeadlock, ErrObserver or ErrClosed, and the errors behind it. If ctx
// ended the wait, it also matches ctx.Err() and context.Cause(ctx).
type WaitError struct {
	Key    string
	Reason error // the obstacle: another caller has the key, say, or the arbiter could not be asked
	Ended  error // the ctx's error, if that is why the wait ended; nil: Reason ended it, or there was no wait (TryLock)
}

// Error returns both, for logs.
func (e *WaitError) Error() string {
	if e.Ended == nil {
		return fmt.Sprintf("coord: lock %s: %v", quoted(e.Key), e.Reason)
	}
	return fmt.Sprintf("coord: lock %s: %v while waiting: %v", quoted(e.Key), e.Ended, e.Reason)
}

// Unwrap returns the errors that this one matches.
func (e *WaitError) Unwrap() []error {
	if e.Ended == nil {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.Ended}
}

// quoted returns a key, which may be any bytes and long, in quotes.
func quoted(key string) string {
	const most = 64
	if len(key) > most {
		return fmt.Sprintf("%q... (%d bytes)", key[:most], len(key))
	}
	return fmt.Sprintf("%q", key)
}
