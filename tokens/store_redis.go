package tokens

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed save.lua
var saveScript string

// RedisStore is a [Store] on a Redis server, 4.0 or later, each account a hash. Its durability is
// that of the server: an account that loses its newest record, by a crash without appendfsync
// always or in a failover, has to be logged in again. Access and refresh tokens are stored as they
// are, unless [Seal] wraps it.
type RedisStore struct {
	client redis.UniversalClient
	prefix string
	save   *redis.Script
}

// keepEmpty is the life of a forgotten account's empty record: longer than any Save takes.
const keepEmpty = 24 * time.Hour

// NewRedisStore returns a store with keys of the form prefix + account. It does no I/O. The client
// stays the caller's; it must not read from replicas. With an ACL it needs ~prefix* and +evalsha
// +eval +hget +hset +persist +pexpire, and redis.Options.DisableIdentity.
func NewRedisStore(client redis.UniversalClient, prefix string) *RedisStore {
	return &RedisStore{client, prefix, redis.NewScript(saveScript)}
}

// Load implements [Store].
func (s *RedisStore) Load(ctx context.Context, account string) (r Record, err error) {
	if err := ctx.Err(); err != nil {
		return r, err
	}
	text, err := s.client.HGet(ctx, s.prefix+account, "r").Bytes()
	if errors.Is(err, redis.Nil) {
		return r, ErrNoAccount
	}
	if err != nil {
		return r, err
	}
	if r, err = DecodeRecord(text); err != nil {
		return Record{}, fmt.Errorf("tokens: the record in Redis is damaged: %w", err)
	}
	return r, nil
}

// Save implements [Store].
func (s *RedisStore) Save(ctx context.Context, account string, r Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	text, err := r.Encode()
	if err != nil {
		return err
	}
	// As texts of the same length versions compare as the numbers do, which Lua could not hold.
	version := fmt.Sprintf("%020d %010d", r.Fence, r.Step)
	var keep time.Duration
	if r.Empty() {
		keep = keepEmpty
	}
	saved, err := s.save.Run(ctx, s.client, []string{s.prefix + account}, version, text, keep.Milliseconds()).Int()
	if err == nil && saved == 0 {
		return ErrSuperseded
	}
	return err
}
