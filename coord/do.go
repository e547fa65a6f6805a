package coord

import (
	"context"
	"errors"
)

// Do calls fn with the key locked, and unlocks it when fn returns, panics or calls runtime.Goexit.
// fn's context has the values and the deadline of ctx, and ends with it. It also ends when the lock
// is lost, with that as its cause; fn has to heed it. It carries the lock: Do, Lock and TryLock of
// the same key with it return [ErrHeld].
//
// Do returns the error of Lock or of fn. If the lock turns out to be lost when it is unlocked, the
// error Is [ErrLost] as well, even if fn returned nil: fn may have acted without protection. fn may
// unlock l itself: then Unlock tells it, and Do does not.
func (c *Coordinator) Do(ctx context.Context, key string, fn func(ctx context.Context, l Lock) error) (err error) {
	l, err := c.Lock(ctx, key)
	if err != nil {
		return err
	}
	s := &section{values: lockValues{l: l}, follows: true}
	defer func() {
		unlocked := s.end()
		if unlocked != nil && errors.Is(unlocked, ErrLost) && !errors.Is(err, ErrLost) {
			err = errors.Join(err, unlocked)
		}
	}()
	return fn(s, l)
}
