package fence

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fence/internal/attempt"
)

var (
	// ErrStale: the resource has seen a higher token. The lock was lost, and a later holder was
	// there. Nothing was written, unless the error Is ErrUnknown, too.
	ErrStale = attempt.ErrStale

	// ErrUnknown: the connection failed while a transaction was committed, or the database's answer
	// does not say how it ended. It may have been committed. DoTx does not try again, as that could
	// execute it twice. Nor does Update if the object may be the one that it has put, or a later
	// holder may have put another one over that.
	ErrUnknown = attempt.ErrUnknown

	// ErrNoRow: the caller's table has no row of the key.
	ErrNoRow = errors.New("fence: no row of the key")
)

// A StaleError has the details of ErrStale: errors.Is(err, ErrStale) holds.
type StaleError = attempt.StaleError

// Judge returns a [*StaleError] if the highest token that was seen of a key is above the given one.
// It is for resources that this package does not know.
func Judge(key string, token, seen coord.Fence) error { return attempt.Judge(key, token, seen) }

// check returns an error if the token is none.
func check(key string, token coord.Fence) error {
	if token == 0 {
		return fmt.Errorf("fence: the token of %q is 0: pass the Fence of a lock", key)
	}
	return nil
}
