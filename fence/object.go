package fence

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fence/internal/attempt"
)

// ErrChanged is the error of [Objects].Put if the object does not have the version any more.
var ErrChanged = errors.New("fence: the object has changed")

// Objects is an object store with conditional writes: S3 with If-Match and If-None-Match, Azure
// Blob Storage with ETags, Google Cloud Storage with generations.
type Objects interface {
	// Get returns an object, the token that it was put with, and its version. An object that does
	// not exist has the version "".
	Get(ctx context.Context, name string) (data []byte, token coord.Fence, version string, err error)

	// Put writes an object with a token if it has the version still, or, for "", does not exist; if
	// not, it returns an error that Is ErrChanged. A version must differ from all earlier ones. The
	// ETag of S3 is a hash of the content, so the token is part of the content there, as its first
	// line for instance. The client should not repeat a write by itself if its answer is lost: the
	// second one finds the object changed, by the first.
	Put(ctx context.Context, name string, data []byte, token coord.Fence, version string) error
}

// Update replaces an object by the result of fn, unless it was put with a higher token: then it
// returns an error that Is [ErrStale] and has a [*StaleError]. If the object changes meanwhile, it
// is read again after a short pause, and fn is called again, until ctx ends: the late write of an
// earlier holder is so either refused, or seen by fn.
//
// The store may say that the object has changed, and have exactly the bytes of this call, with this
// token. Then a client or a proxy has repeated a write whose answer was lost; or another call with
// the same token did the same. The error Is [ErrUnknown], unless fn makes the same of it once more.
// If the object has a higher token by then, the error Is ErrStale and ErrUnknown: this call's bytes
// may have been there before. If it has the same token, but other bytes, Update goes on: where a
// client repeats a write, calls with one token that run beside each other may count twice.
func Update(ctx context.Context, store Objects, name string, token coord.Fence, fn func(old []byte) ([]byte, error)) error {
	if err := check(name, token); err != nil {
		return err
	}
	var was []byte // the bytes that Update was about to put when the object had changed
	for n := 1; ; n++ {
		old, seen, version, err := store.Get(ctx, name)
		if err != nil {
			return err
		}
		if err := Judge(name, token, seen); err != nil {
			if n > 1 {
				return fmt.Errorf("%w, and what was put may have been there before: %w", err, ErrUnknown)
			}
			return err
		}
		doubt := n > 1 && seen == token && bytes.Equal(old, was)
		data, err := fn(old)
		switch {
		case doubt && err == nil && bytes.Equal(data, was):
			return nil
		case doubt:
			return fmt.Errorf("%w: object %q is what was to be put: that was done, or another call with the same token did the same", ErrUnknown, name)
		case err != nil:
			return err
		}
		if err := store.Put(ctx, name, data, token, version); !errors.Is(err, ErrChanged) {
			return err
		}
		was = bytes.Clone(data) // fn may use the memory again
		if !attempt.Pause(ctx, n) {
			return context.Cause(ctx)
		}
	}
}
