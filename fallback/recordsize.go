package fallback

import (
	"cmp"
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

// TooLarge is the error of a [Records.Swap] of which a record is larger than the store takes. limit
// names what it is larger than. More partitions make records of partitions smaller, and leave the
// table of sessions, which is one record, as it is.
func TooLarge(changes []Change, limit string) error {
	x := slices.MaxFunc(changes, func(a, b Change) int { return cmp.Compare(len(a.Value), len(b.Value)) })
	if strings.HasSuffix(x.Key, "/s") {
		return fmt.Errorf("%w: their table has %d bytes, more than %s: run fewer processes with one Namespace, or use another store",
			errFull, len(x.Value), limit)
	}
	return fmt.Errorf("%w: a record has %d bytes, more than %s: use more Partitions", ErrRefused, len(x.Value), limit)
}

var errFull = fmt.Errorf("%w: there are too many sessions for this store", ErrRefused)

// A roomError is an [ErrWait]: the table of sessions is too large, and may get smaller when this process
// has seen it for long enough to know which of them have ended.
type roomError struct{ error }

func (e roomError) Is(target error) bool { return target == ErrWait }

func (e roomError) Unwrap() error { return e.error }
