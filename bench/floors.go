package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"
)

// What no lock can be faster than, measured beside them.

// keyedMutex is a lock per key for the goroutines of one process, as it is often written.
type keyedMutex struct {
	mu   sync.Mutex // protects keys
	keys map[string]*countedMutex
}

type countedMutex struct {
	sync.Mutex
	users int // that have it, or wait for it
}

func (k *keyedMutex) lock(key string) {
	k.mu.Lock()
	m := k.keys[key]
	if m == nil {
		m = new(countedMutex)
		k.keys[key] = m
	}
	m.users++
	k.mu.Unlock()
	m.Lock()
}

func (k *keyedMutex) unlock(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.keys[key]
	m.Unlock()
	if m.users--; m.users == 0 {
		delete(k.keys, key)
	}
}

// roundTrip sends a byte to an echo and waits for it.
func roundTrip(c net.Conn) error {
	buf := [1]byte{1}
	if _, err := c.Write(buf[:]); err != nil {
		return err
	}
	_, err := io.ReadFull(c, buf[:])
	return err
}

// setOnly is the one command that no lock at Redis can do without.
func setOnly(ctx context.Context, c *redis.Client, key string) error {
	ok, err := c.SetNX(ctx, key, "me", setExpiry).Result()
	if err == nil && !ok {
		err = fmt.Errorf("%s is locked", key)
	}
	return err
}
