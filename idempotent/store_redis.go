package idempotent

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/put.lua
var luaPut string

//go:embed lua/get.lua
var luaGet string

// RedisStoreOptions are the options of [NewRedisStore]. The zero value of each field means its
// default, and a nil
// *RedisStoreOptions means all defaults.
type RedisStoreOptions struct {
	// Prefix begins the names of the keys at the server. Services that share a server need one
	// each, or one could answer a request with the record of another. Default "idempotency:".
	Prefix string
}

// A RedisStore is a [Store] on a Redis server, Sentinel or Cluster: a key with an expiry for each
// record. It needs the commands EVAL, GET, GETRANGE and SET on keys with its prefix, and remembers
// as reliably as the server does: one without persistence forgets with a restart, and a failover
// may lose the last records. It should be one that does not evict keys (maxmemory-policy
// noeviction): when memory is full, new requests are refused then, and otherwise old ones executed
// again. It should be another server than that of the locks, or have room for all records: where
// memory is full, no lock can be taken. Idempotent warns of both in its log, if the client may also
// use INFO, and EXISTS on the keys of the locks.
type RedisStore struct {
	client redis.UniversalClient
	prefix string
}

// NewRedisStore returns a store that uses the client as it is, and never closes it. Set its
// ContextTimeoutEnabled: without, a call takes as long as the client's own timeouts and retries let
// it. It does not talk to the server.
func NewRedisStore(client redis.UniversalClient, opts *RedisStoreOptions) *RedisStore {
	if client == nil {
		panic("idempotent: NewRedisStore needs a client")
	}
	var o RedisStoreOptions
	if opts != nil {
		o = *opts
	}
	if o.Prefix == "" {
		o.Prefix = "idempotency:"
	}
	return &RedisStore{client: client, prefix: o.Prefix}
}

// fenceDigits are before each record: the largest uint64 has so many.
const fenceDigits = 20

// Get implements [Store].
func (s *RedisStore) Get(ctx context.Context, key string) ([]byte, error) {
	text, err := s.client.Eval(ctx, luaGet, []string{s.prefix + key}).Text()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, ErrNoRecord
	case err != nil:
		return nil, err
	case len(text) < fenceDigits:
		return nil, fmt.Errorf("idempotent: %q at the server is not a record", s.prefix+key)
	}
	return []byte(text[fenceDigits:]), nil
}

// Put implements [Store]. The server counts in milliseconds: a ttl is rounded up to those.
func (s *RedisStore) Put(ctx context.Context, key string, record []byte, fence uint64, ttl time.Duration) error {
	if ttl <= 0 {
		return errTTL(ttl)
	}
	ms := int64(ttl / time.Millisecond)
	if ttl%time.Millisecond > 0 {
		ms++ // to add one less a bit, as one would, overflows where ttl is for ever
	}
	n, err := s.client.Eval(ctx, luaPut, []string{s.prefix + key}, fmt.Sprintf("%0*d", fenceDigits, fence), record, ms).Int()
	switch {
	case err != nil:
		return err
	case n == 0:
		return ErrStale
	}
	return nil
}
