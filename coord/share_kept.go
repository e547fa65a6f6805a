package coord

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// A value in a ShareStore begins with a byte that names the kind of the rest.
const (
	keptValue = '=' // the result of Encode for a T
	keptError = '!' // JSON of a keptErr
	keptGap   = '-' // nothing: Unshare was here
)

// A KeptError is an error of fn that was kept, as ShareOptions.KeepErrors says: callers that come
// after the run get it.
type KeptError struct {
	Text string        // of fn's error, the first 1,024 bytes of it at most
	Err  error         // the one of KeepErrors that fn's error was, or had in it
	Age  time.Duration // since it was stored
}

// Error returns Text.
func (e *KeptError) Error() string { return e.Text }

// Unwrap returns Err.
func (e *KeptError) Unwrap() error { return e.Err }

// maxKeptText bounds the text that is stored of an error: more is not looked at.
const maxKeptText = 1024

// keptErr is how an error is stored. Sentinels are told apart by their texts: their addresses mean
// nothing to other processes. The texts are bytes, since JSON would change one that is not UTF-8,
// and no process would know it again.
type keptErr struct {
	Is   []byte `json:"is"`
	Text []byte `json:"text"`
}

// keep returns the value to store for fn's error, nil if there is none.
func (o *ShareOptions[T]) keep(err error) []byte {
	for _, known := range o.KeepErrors {
		if errors.Is(err, known) {
			b, _ := json.Marshal(keptErr{[]byte(known.Error()), []byte(cut(err.Error(), maxKeptText))})
			return append([]byte{keptError}, b...)
		}
	}
	return nil
}

// cut returns the first n bytes of a text at most, and no half of a character.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for back := n; back > n-utf8.UTFMax; back-- {
		if utf8.RuneStart(text[back]) {
			return text[:back]
		}
	}
	return text[:n] // it is not UTF-8
}

// kept returns the error that was stored, nil if it cannot be used: it is none of KeepErrors in
// this process.
func (o *ShareOptions[T]) kept(b []byte, age time.Duration) error {
	var e keptErr
	if json.Unmarshal(b, &e) != nil {
		return nil
	}
	for _, known := range o.KeepErrors {
		if known.Error() == string(e.Is) {
			return &KeptError{string(e.Text), withoutValue(known), age}
		}
	}
	return nil
}

// gapFor is for how long a result is refused that is older than an Unshare. An earlier holder of
// the lock may have been stopped before it stored the result.
const gapFor = time.Hour

// Unshare makes no caller use the result, or the error, that is kept for the key: the next [Share]
// runs fn, as when the data that fn reads has been changed. store is the one of ShareOptions.Store,
// nil for the arbiter.
//
// It locks the key until it is done. So it waits for a run of fn that is under way, and the result
// of that run is not used any more either. The holder of the key's lock must not call it. With an
// error it is unknown whether it has happened, and Unshare may be called again.
//
// A Share of this process that begins after Unshare has returned gets the result of a run that
// began after Unshare was called. In another process one may join callers that were reading at that
// moment: for as long as that read takes it may get their result.
func Unshare(ctx context.Context, c *Coordinator, key string, store ShareStore) error {
	return c.Do(ctx, key, func(ctx context.Context, l Lock) error {
		store, err := c.storeOr(store, "Unshare's store")
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, c.opts.CallTimeout)
		defer cancel()
		if err := store.Put(ctx, key, []byte{keptGap}, uint64(l.Fence()), gapFor); err != nil {
			if errors.Is(err, ErrLost) {
				return err
			}
			return fmt.Errorf("%w: remove the result of %s: %w", ErrUnavailable, quoted(key), err)
		}
		c.callers.shares.era.Add(1)
		return nil
	})
}
