package rivals

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Floors, measured beside the locks: no lock can be faster.

// KeyedMutex is a lock per key for the goroutines of one process, as it is often written. The zero
// value is ready.
type KeyedMutex struct {
	mu   sync.Mutex // protects keys
	keys map[string]*countedMutex
}

type countedMutex struct {
	sync.Mutex
	users int // that have it, or wait for it
}

func (k *KeyedMutex) Lock(key string) {
	k.mu.Lock()
	m := k.keys[key]
	if m == nil {
		if m = new(countedMutex); k.keys == nil {
			k.keys = make(map[string]*countedMutex)
		}
		k.keys[key] = m
	}
	m.users++
	k.mu.Unlock()
	m.Lock()
}

func (k *KeyedMutex) Unlock(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.keys[key]
	m.Unlock()
	if m.users--; m.users == 0 {
		delete(k.keys, key)
	}
}

// RoundTrip sends a byte to an echo and waits for it.
func RoundTrip(c net.Conn) error {
	buf := [1]byte{1}
	if _, err := c.Write(buf[:]); err != nil {
		return err
	}
	_, err := io.ReadFull(c, buf[:])
	return err
}

// SetOnly is the one command that no lock at Redis can do without.
func SetOnly(ctx context.Context, c *redis.Client, key string) error {
	ok, err := c.SetNX(ctx, key, "me", setExpiry).Result()
	if err == nil && !ok {
		err = fmt.Errorf("%s is locked", key)
	}
	return err
}

// deleteIfMine unlocks a key that SET has locked.
var deleteIfMine = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

// SetPair locks and unlocks as most do, in two round trips.
func SetPair(ctx context.Context, c *redis.Client, key string) error {
	if err := SetOnly(ctx, c, key); err != nil {
		return err
	}
	n, err := deleteIfMine.Run(ctx, c, []string{key}, "me").Int()
	if err == nil && n != 1 {
		err = fmt.Errorf("%s was not locked", key)
	}
	return err
}
