package coord_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
)

// sentAway are callers that do not get a key.
var sentAway = map[string]func(t *testing.T, c *coord.Coordinator, key string) error{
	"TryLock beside a reader": func(t *testing.T, c *coord.Coordinator, key string) error {
		defer runlock(t, rlock(t, c, key))
		_, err := c.TryLock(t.Context(), key)
		return err
	},
	"Lock by a reader": func(t *testing.T, c *coord.Coordinator, key string) error {
		r := rlock(t, c, key)
		defer runlock(t, r)
		_, err := c.Lock(r.Context(), key)
		return err
	},
	"LockAll by a reader": func(t *testing.T, c *coord.Coordinator, key string) error {
		r := rlock(t, c, key)
		defer runlock(t, r)
		_, err := c.LockAll(r.Context(), key, key+"'")
		return err
	},
	"Lock beside a reader": func(t *testing.T, c *coord.Coordinator, key string) error {
		defer runlock(t, rlock(t, c, key))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := c.Lock(ctx, key)
		return err
	},
	"TryRLock beside a writer": func(t *testing.T, c *coord.Coordinator, key string) error {
		defer unlock(t, lock(t, c, key))
		_, err := c.TryRLock(t.Context(), key)
		return err
	},
	"RLock by a writer": func(t *testing.T, c *coord.Coordinator, key string) error {
		l := lock(t, c, key)
		defer unlock(t, l)
		_, err := c.RLock(l.Context(), key)
		return err
	},
	"TryAcquire beside one that has all": func(t *testing.T, c *coord.Coordinator, key string) error {
		s := c.Semaphore(key, 3)
		defer release(t, acquire(t, s, 3))
		_, err := s.TryAcquire(t.Context(), 1)
		return err
	},
}

// A process forgets the keys that its callers do not use any more, also those that they have not
// got.
func TestKeys_OfCallersThatWereSentAway(t *testing.T) {
	for name, away := range sentAway {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				c := start(t, a, nil)
				for i := range 100 {
					if err := away(t, c, fmt.Sprint(i)); !errors.Is(err, coord.ErrLocked) && !errors.Is(err, coord.ErrHeld) {
						t.Fatal(err)
					}
				}
				time.Sleep(10 * time.Second) // longer than Linger, and than blocks are kept
				if n := coord.Keys(c); n > 0 {
					t.Errorf("%d keys that no caller uses", n)
				}
			})
		})
	}
}

// No key that a caller passes is that of a semaphore. Inspect can look at a semaphore's key.
func TestSemaphore_KeyIsNoLocks(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, nil)
		p, err := c.Semaphore("k", 1).Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		const key = "\x00k"
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, locked := c.TryLock(t.Context(), key)
		_, read := c.TryRLock(t.Context(), key)
		_, all := c.TryLockAll(t.Context(), "a", key)
		_, permits := c.Semaphore(key, 1).TryAcquire(t.Context(), 1)
		_, shared := coord.Share(ctx, c, key, nil, func(context.Context, coord.Fence) (string, error) { return "", nil })
		for what, err := range map[string]error{"TryLock": locked, "TryRLock": read, "TryLockAll": all, "Semaphore": permits, "Share": shared} {
			if !errors.Is(err, coord.ErrInvalidKey) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if info, err := c.Inspect(t.Context(), key); err != nil || len(info.Shared) != 1 {
			t.Errorf("Inspect: %+v, %v", info, err)
		}
		if err := p.Release(); err != nil {
			t.Error(err)
		}
	})
}
