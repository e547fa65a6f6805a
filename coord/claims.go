package coord

import (
	"context"
	"errors"
)

// A Claim is a key that [Coordinator.LockClaims] is to lock.
type Claim struct {
	Key  string
	Read bool // for reading, as RLock does; otherwise as Lock does
}

// ForReading returns claims of keys for reading.
func ForReading(keys ...string) []Claim { return claimsOf(keys, true) }

// ForWriting returns claims of keys for writing.
func ForWriting(keys ...string) []Claim { return claimsOf(keys, false) }

func claimsOf(keys []string, read bool) []Claim {
	claims := make([]Claim, len(keys))
	for i, key := range keys {
		claims[i] = Claim{key, read}
	}
	return claims
}

// Claimed are the locks that [Coordinator.LockClaims] granted together: those for writing, and
// those for reading. Copies are the same locks. Its methods are safe for concurrent use.
type Claimed struct {
	Writes Locks
	Reads  []ReadLock
}

// Of returns the lock for writing of a key; the zero Lock, which is not in force, if there is none.
func (s Claimed) Of(key string) Lock { return s.Writes.Of(key) }

// ReadOf returns the lock for reading of a key; the zero ReadLock, which is not in force, if there
// is none.
func (s Claimed) ReadOf(key string) ReadLock {
	for _, l := range s.Reads {
		if l.Key() == key {
			return l
		}
	}
	return ReadLock{}
}

// Fence returns the token of the lock of a key, for reading or writing, 0 if there is none.
func (s Claimed) Fence(key string) Fence { return max(s.Of(key).Fence(), s.ReadOf(key).Fence()) }

// Unlock unlocks all of them, as [Locks.Unlock] does.
func (s Claimed) Unlock() error {
	var errs []error
	for _, l := range s.Reads {
		errs = append(errs, l.Unlock())
	}
	return errors.Join(append(errs, s.Writes.Unlock())...)
}

// LockClaims is [Coordinator.LockAll] with some keys locked for reading only, as by
// [Coordinator.RLock]. The order is that of LockAll: callers of either do not wait for each other
// in a circle. A key that is claimed for reading and for writing is locked for writing.
func (c *Coordinator) LockClaims(ctx context.Context, claims ...Claim) (Claimed, error) {
	return claimed(c.lockAll(ctx, claims, false))
}

// TryLockClaims is LockClaims for callers that do not want to wait for others: see
// [Coordinator.TryLockAll].
func (c *Coordinator) TryLockClaims(ctx context.Context, claims ...Claim) (Claimed, error) {
	return claimed(c.lockAll(ctx, claims, true))
}

func claimed(all []granted, err error) (s Claimed, _ error) {
	if err != nil {
		return Claimed{}, err
	}
	for _, g := range all {
		if g.r.seat != nil {
			s.Reads = append(s.Reads, g.r)
		} else {
			s.Writes = append(s.Writes, g.l)
		}
	}
	return s, nil
}

// DoClaims is [Coordinator.DoAll] with some keys locked for reading only: see
// [Coordinator.LockClaims].
func (c *Coordinator) DoClaims(ctx context.Context, claims []Claim, fn func(ctx context.Context, locks Claimed) error) (err error) {
	locks, err := c.LockClaims(ctx, claims...)
	if err != nil {
		return err
	}
	values := context.Context(heldLocks{ctx, locks.Writes})
	for _, l := range locks.Reads {
		values = &readValues{values, l}
	}
	inner, cancel := context.WithCancelCause(carry(ctx, values.Value(heldKey)))
	for _, l := range locks.Writes {
		l.endsWith(cancel)
	}
	for _, l := range locks.Reads {
		l.endsWith(cancel)
	}
	defer func() {
		unlocked := locks.Unlock()
		cancel(ErrUnlocked) // of no locks
		if errors.Is(unlocked, ErrLost) && !errors.Is(err, ErrLost) {
			err = errors.Join(err, unlocked)
		}
	}()
	return fn(&clocked{inner, &locks, ctx, cancel}, locks)
}

// endIfLapsed ends the locks that are not in force by the clock.
func (s Claimed) endIfLapsed() {
	for _, l := range s.Writes {
		l.holds()
	}
	for _, l := range s.Reads {
		l.holds()
	}
}
