package tokens

import (
	"errors"
	"fmt"
	"time"
)

// Errors of a Keeper.
var (
	// ErrAccount: the name of an account must have 1 to [MaxAccount] bytes.
	ErrAccount = errors.New("tokens: invalid account name")

	// ErrNoAccount: nothing is stored of the account, or it was forgotten. See [Keeper.Replace].
	ErrNoAccount = errors.New("tokens: no such account")

	// ErrInDoubt: it is not known whether the provider has spent the account's refresh token. The
	// user has to log in again, and the program to call [Keeper.Replace], unless
	// [InDoubtError.Replay] is set.
	ErrInDoubt = errors.New("tokens: in doubt")

	// ErrRejected: the provider does not accept the account's refresh token any more. The user has
	// to log in again, and the program to call [Keeper.Replace].
	ErrRejected = errors.New("tokens: refresh token rejected")

	// ErrRetryLater: the provider has said, to this process or to another one, that it wants to be
	// left alone about the account for a while (Retry-After).
	ErrRetryLater = errors.New("tokens: retry later")

	// ErrSeal: the account's record does not open, or is not sealed. See [Seal].
	ErrSeal = errors.New("tokens: the record cannot be opened")

	// ErrClosed: the Keeper was closed.
	ErrClosed = errors.New("tokens: closed")
)

// ErrSuperseded is Save's: a later version of the record is stored. Callers of a Keeper see it when
// this process was stopped for so long that it lost the account's lock.
var ErrSuperseded = errors.New("tokens: a later version is stored")

// An InDoubtError has the details of [ErrInDoubt]: errors.Is(err, ErrInDoubt) holds.
type InDoubtError struct {
	Account string
	Fence   uint64    // token of the lock under which the refresh token was sent, or was about to be
	Since   time.Time // when it was, for the first time
	Again   bool      // it was sent again since, and that is in doubt as well
	Replay  bool      // it will be sent again, as Options.ReplayInDoubt permits: ask again after Options.Backoff, or Retry-After
	Err     error     // the cause, in the process of the failure; nil in others
}

func (e *InDoubtError) Error() string {
	text := fmt.Sprintf("tokens: account %q is in doubt: its refresh token may have been spent at %s (fence %d)",
		e.Account, e.Since.Format(time.RFC3339Nano), e.Fence)
	if e.Again {
		text += ", and once more"
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Is makes errors.Is(e, ErrInDoubt) true.
func (e *InDoubtError) Is(target error) bool { return target == ErrInDoubt }

// Unwrap returns the cause, if it is known.
func (e *InDoubtError) Unwrap() error { return e.Err }

// A RejectedError has the details of [ErrRejected]: errors.Is(err, ErrRejected) holds.
type RejectedError struct {
	Account string
	Code    string // the provider's, as "invalid_grant"
	Err     error  // an *oauth2.RetrieveError in the process that was told so; nil in others. Its text is the provider's: not for logs
}

func (e *RejectedError) Error() string {
	return fmt.Sprintf("tokens: the refresh token of account %q was rejected: %s", e.Account, e.Code)
}

// Is makes errors.Is(e, ErrRejected) true.
func (e *RejectedError) Is(target error) bool { return target == ErrRejected }

// Unwrap returns the provider's answer, if it was given to this process.
func (e *RejectedError) Unwrap() error { return e.Err }

// A RetryLaterError has the details of [ErrRetryLater]: errors.Is(err, ErrRetryLater) holds.
type RetryLaterError struct {
	Account string
	Until   time.Time // by the clock of the process that was told so
	Err     error     // an *oauth2.RetrieveError in that process; nil in others
}

func (e *RetryLaterError) Error() string {
	text := fmt.Sprintf("tokens: account %q: the provider is not to be asked until %s", e.Account, e.Until.Format(time.RFC3339))
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Is makes errors.Is(e, ErrRetryLater) true.
func (e *RetryLaterError) Is(target error) bool { return target == ErrRetryLater }

// Unwrap returns the provider's answer, if it was given to this process.
func (e *RetryLaterError) Unwrap() error { return e.Err }
