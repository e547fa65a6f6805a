package fallback

import "errors"

// A SwapError is the error of a [Records.Swap] that tells of each change. Its lists are in the
// order of the changes. It is not one of Errs, which are of one change each.
type SwapError struct {
	Done []bool // which were written, for sure

	// Errs are of those that were not: why one is unknown, or was not executed ([ErrRefused],
	// [ErrNotSent]). Nil: another process was faster.
	Errs []error
}

func (e *SwapError) Error() string { return errors.Join(e.Errs...).Error() }

// Swapped returns the results of a [Records.Swap] that has written its changes in several steps.
// The error is a [SwapError] of done and errs if some changes failed, and others were written, may
// have been, or met a faster process.
func Swapped(done []bool, errs []error) ([]bool, error) {
	err := errors.Join(errs...)
	if err == nil {
		return done, nil
	}
	for i, e := range errs {
		if done[i] || e == nil || !notExecuted(e) {
			return nil, &SwapError{done, errs}
		}
	}
	return nil, err // of each: none was written
}
