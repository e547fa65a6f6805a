package middleware

import (
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/idempotent"
)

// The stores of [Idempotent] are those of package idempotent, by the names of this one.
type (
	Store              = idempotent.Store
	MemoryStore        = idempotent.MemoryStore
	MemoryStoreOptions = idempotent.MemoryStoreOptions
	RedisStore         = idempotent.RedisStore
	RedisStoreOptions  = idempotent.RedisStoreOptions
)

// Errors of stores.
var (
	ErrNoRecord = idempotent.ErrNoRecord
	ErrStale    = idempotent.ErrStale
)

// NewMemoryStore is [idempotent.NewMemoryStore].
func NewMemoryStore(opts *MemoryStoreOptions) *MemoryStore { return idempotent.NewMemoryStore(opts) }

// NewRedisStore is [idempotent.NewRedisStore].
func NewRedisStore(client redis.UniversalClient, opts *RedisStoreOptions) *RedisStore {
	return idempotent.NewRedisStore(client, opts)
}
