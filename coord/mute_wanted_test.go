package coord_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/fallback"
)

// TestMute_Wanted has a caller of another process come when a lock has been in use for long: its
// holder learns of that without a message.
func TestMute_Wanted(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c, other := start(t, muteArbiter{a, false}, nil), start(t, muteArbiter{a, false}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		type unlock = func() error
		wanted := func(what string, ch <-chan struct{}, release unlock, wants func() (unlock, error)) {
			t.Helper()
			time.Sleep(10 * time.Second)
			got := make(chan error, 1)
			go func() {
				unlock, err := wants()
				if err == nil {
					err = unlock()
				}
				got <- err
			}()
			select {
			case <-ch:
			case <-time.After(10 * time.Second):
				t.Errorf("%s: another process has waited for 10 s, and Wanted is not closed", what)
			}
			if err := release(); err != nil {
				t.Error(err)
			}
			if err := <-got; err != nil {
				t.Error(err)
			}
		}
		writes := func(key string) func() (unlock, error) {
			return func() (unlock, error) { l, err := other.Lock(ctx, key); return l.Unlock, err }
		}
		l := lock(t, c, "k")
		wanted("Lock", l.Wanted(), l.Unlock, writes("k"))
		r, err := c.RLock(ctx, "r")
		if err != nil {
			t.Fatal(err)
		}
		wanted("RLock", r.Wanted(), r.Unlock, writes("r"))
		p := acquire(t, c.Semaphore("s", 10), 4)
		wanted("Acquire", p.Wanted(), p.Release, func() (unlock, error) {
			p, err := other.Semaphore("s", 10).Acquire(ctx, 7)
			return p.Release, err
		})
	})
}

// TestMute_PermitsThatAreFree has callers use some permits of a block for long: other processes get
// the rest.
func TestMute_PermitsThatAreFree(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		c, other := start(t, muteArbiter{a, false}, nil), start(t, muteArbiter{a, false}, nil)
		s := c.Semaphore("k", 10)
		release(t, acquire(t, s, 10))
		p := acquire(t, s, 4) // of a block of ten
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		q, err := other.Semaphore("k", 10).Acquire(ctx, 6)
		if err != nil {
			t.Errorf("six of ten are free: %v", err)
		} else {
			release(t, q)
		}
		release(t, p)
	})
}
