package fallback

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// CheckSizes refuses a Swap of a record with more than limit bytes: see [TooLarge].
func CheckSizes(changes []Change, limit int) error {
	for _, c := range changes {
		if len(c.Value) > limit {
			return TooLarge(changes, fmt.Sprintf("%d bytes", limit))
		}
	}
	return nil
}

// TooLarge is the error of a [Records.Swap] with a record that is larger than the store takes: the
// largest one is refused, and the others are tried again without it. limit names the size that it
// exceeds. More partitions make records of partitions smaller, and leave the table of sessions,
// which is one record, as it is.
func TooLarge(changes []Change, limit string) error {
	x := slices.MaxFunc(changes, func(a, b Change) int { return cmp.Compare(len(a.Value), len(b.Value)) })
	if strings.HasSuffix(x.Key, "/s") {
		return &sizeError{x.Key, fmt.Errorf("%w: their table has %d bytes, more than %s: run fewer processes with one Namespace, or use another store",
			errFull, len(x.Value), limit)}
	}
	return &sizeError{x.Key, fmt.Errorf("%w: a record has %d bytes, more than %s: use more Partitions", ErrRefused, len(x.Value), limit)}
}

// A sizeError is that of the record of a key. It says nothing of the others of its Swap, but that
// none was written.
type sizeError struct {
	key string
	error
}

func (e *sizeError) Unwrap() error { return e.error }

// perChange returns the errors of the single changes of a Swap, if err has these. A sizeError is
// that of the change that is too large.
func perChange(err error, changes []Change) (some *SwapError, ok bool) {
	if errors.As(err, &some) {
		return some, true
	}
	large, ok := errors.AsType[*sizeError](err)
	if !ok || !notExecuted(err) {
		return nil, false
	}
	at := slices.IndexFunc(changes, func(c Change) bool { return c.Key == large.key })
	if at < 0 {
		return nil, false
	}
	some = &SwapError{make([]bool, len(changes)), make([]error, len(changes))}
	some.Errs[at] = err
	return some, true
}

var errFull = fmt.Errorf("%w: there are too many sessions for this store", ErrRefused)

// A roomError is an [ErrWait]: the table of sessions is too large. It may get smaller when this
// process has seen it for long enough to know which of them have ended.
type roomError struct{ error }

func (e roomError) Is(target error) bool { return target == ErrWait }

func (e roomError) Unwrap() error { return e.error }
