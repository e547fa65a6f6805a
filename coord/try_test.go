package coord_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// trials tries to get a key by one name just after a caller of the same process had it by the other
// one.
func trials(t *testing.T, c *coord.Coordinator, key string) (refused int) {
	t.Helper()
	for range 20 {
		unlock(t, lock(t, c, key))
		r, err := c.TryRLock(t.Context(), key)
		if err != nil {
			refused++
			continue
		}
		if err := r.Unlock(); err != nil {
			t.Fatal(err)
		}
		l, err := c.TryLock(t.Context(), key)
		if err != nil {
			refused++
			continue
		}
		unlock(t, l)
	}
	return refused
}

// A process keeps a key for its next callers, and not from them: one that tries to read a key that
// was just written gets it, and the other way round.
func TestTry_WhatThisProcessKeepsIsNotInTheWay(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c := start(t, a, &coord.Options{})
		if n := trials(t, c, "k"); n > 0 {
			t.Errorf("%d of 40 tries were refused", n)
		}
		l := lock(t, c, "k")
		began := time.Now()
		if _, err := c.TryRLock(t.Context(), "k"); err == nil || time.Since(began) > time.Millisecond {
			t.Errorf("a caller has the key: %v after %v", err, time.Since(began))
		}
		unlock(t, l)
	})
}

func TestTry_WhatThisNodeKeepsOfAnotherOnes(t *testing.T) {
	takes.Seconds(t)
	a := fallback.NewMemory()
	one, two := join(t, a, unhurried()), join(t, a, unhurried())
	settled(t, 61, one, two)
	key := keyOf(t, one)
	await.Until(t, "there is a stream", func() bool {
		l, err := two.TryLock(t.Context(), key)
		return err == nil && l.Unlock() == nil
	})
	if n := trials(t, two, key); n > 0 {
		t.Errorf("%d of 40 tries were refused", n)
	}
}
