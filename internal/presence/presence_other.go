//go:build !linux

package presence

import (
	"context"
	"errors"
	"fmt"
)

var errNone = fmt.Errorf("presence: only on Linux: %w", errors.ErrUnsupported)

// Place returns "": no process of this host can be seen.
func Place() string { return "" }

// A Sign shows that this process lives. There is none here.
type Sign struct{}

// Show returns an error here.
func Show(string) (*Sign, error) { return nil, errNone }

// Tidy does nothing here.
func (*Sign) Tidy() {}

// Close does nothing here.
func (*Sign) Close() {}

// A Watcher is a connection to the sign of a process. There is none here.
type Watcher struct{}

// Watch returns an error here.
func Watch(string) (*Watcher, error) { return nil, errNone }

// Ended returns an error here.
func (*Watcher) Ended(context.Context) error { return errNone }

// Close does nothing here.
func (*Watcher) Close() {}
