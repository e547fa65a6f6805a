package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
)

const testTTL = 10 * time.Second

func newTestSetnx(t *testing.T) (*setnx, *miniredis.Miniredis) {
	t.Helper()
	server := miniredis.RunT(t)
	client := newRedisClient(server.Addr(), 8)
	t.Cleanup(func() { client.Close() })
	return &setnx{client, "test", testTTL}, server
}

func TestSetnxExcludes(t *testing.T) {
	locks, server := newTestSetnx(t)
	var wg sync.WaitGroup
	n, inside := 0, 0 // unsynchronised: the race detector sees whether the lock orders them
	for range 8 {
		wg.Go(func() {
			for range 5 {
				h, err := locks.Lock(t.Context(), "sku-1")
				if err != nil {
					t.Error(err)
					return
				}
				if inside++; inside != 1 {
					t.Error("two holders")
				}
				n++
				inside--
				if err := h.Unlock(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n != 40 {
		t.Errorf("%d sections", n)
	}
	if keys := server.Keys(); len(keys) != 0 {
		t.Errorf("keys left: %v", keys)
	}
}

func TestSetnxWaitEndsWithItsContext(t *testing.T) {
	locks, server := newTestSetnx(t)
	first, err := locks.Lock(t.Context(), "sku-1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := locks.Lock(ctx, "sku-1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if !server.Exists("test:sku-1") {
		t.Error("who gave up waiting took the holder's lock away")
	}
	if err := first.Unlock(); err != nil {
		t.Error(err)
	}
	if server.Exists("test:sku-1") {
		t.Error("still locked")
	}
}

func TestSetnxHoldOutlivesItsWait(t *testing.T) {
	locks, _ := newTestSetnx(t)
	ctx, cancel := context.WithCancel(t.Context())
	h, err := locks.Lock(ctx, "sku-1")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if h.Context().Err() != nil {
		t.Error("the hold ended with the context of the wait")
	}
	if err := h.Unlock(); err != nil {
		t.Error(err)
	}
}

func TestSetnxExpiredUnlockHarmsNobody(t *testing.T) {
	locks, server := newTestSetnx(t)
	late, err := locks.Lock(t.Context(), "sku-1")
	if err != nil {
		t.Fatal(err)
	}
	server.FastForward(testTTL + time.Second)
	next, err := locks.Lock(t.Context(), "sku-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := late.Unlock(); !errors.Is(err, errLockExpired) {
		t.Errorf("%v", err)
	}
	if !server.Exists("test:sku-1") {
		t.Error("the late one deleted the next one's lock")
	}
	if err := next.Unlock(); err != nil {
		t.Error(err)
	}
}

func TestSetnxWithoutServer(t *testing.T) {
	locks, server := newTestSetnx(t)
	server.SetError("out of order")
	if h, err := locks.Lock(t.Context(), "sku-1"); err == nil {
		t.Errorf("locked: %v", h)
	}
}
