package fallback

import "errors"

// A SwapError is the error of a [Records.Swap] that has written some changes, or may have. Its lists
// are in the order of the changes. It is not one of its own errors, which are of one change each.
type SwapError struct {
	Done []bool  // which were written, for sure
	Errs []error // of one that was not: why it is unknown, or not executed ([ErrRefused], [ErrNotSent]); nil: another process was faster
}

func (e *SwapError) Error() string { return errors.Join(e.Errs...).Error() }

// Swapped returns what a [Records.Swap] does that has written its changes in several steps: a [SwapError]
// of what done and errs tell, unless all is known to be written or not.
func Swapped(done []bool, errs []error) ([]bool, error) {
	err := errors.Join(errs...)
	if err == nil {
		return done, nil
	}
	for i, e := range errs {
		if done[i] || e != nil && !notExecuted(e) {
			return nil, &SwapError{done, errs}
		}
	}
	return nil, err // none was written
}
