package idempotent

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/once"
)

// A Store keeps records of executions, so that all processes find them. It does not read them. The
// memory of an answer over crashes depends on it alone: a store that forgets records early lets
// requests be executed again. Package middleware/storetest checks implementations.
//
// Keys are ASCII, of 43 bytes. All methods are safe for concurrent use; they block until they are
// done, or, if the store can, until ctx ends, and then return an error: the operation may have been
// done all the same.
type Store interface {
	// Get returns the record that was put last, or an error that Is [ErrNoRecord] if there is none,
	// or if it has expired. It must see every Put that has returned, of any process: a replica that
	// lags behind will not do. The caller may change the bytes.
	Get(ctx context.Context, key string) ([]byte, error)

	// Put stores a record for ttl, in the place of the one before. It compares and stores in one
	// step: if the record before was put with a higher fence, and has not expired, it stays, and
	// the error Is [ErrStale]. An equal fence is the same holder's next record. Fences are below
	// 2^63, and use all their bits: a float64 cannot tell two of them apart.
	//
	// The bytes are not used after Put has returned. Put is an error if ttl is not positive.
	Put(ctx context.Context, key string, record []byte, fence uint64, ttl time.Duration) error
}

var (
	// ErrNoRecord is returned by Store.Get: there is no record with that key.
	ErrNoRecord = once.ErrNoRecord

	// ErrStale is returned by Store.Put: a record with a higher fence is there.
	ErrStale = once.ErrStale
)
