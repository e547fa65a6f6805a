// Package telemetry has what the modules of metrics have in common.
package telemetry

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/coord"
)

// MaxClasses is how many classes of keys there may be. Further ones count as "other".
const MaxClasses = 100

// Classes names classes of keys, which may be labels where keys may not: there are few of them.
// Safe for concurrent use.
type Classes struct {
	of func(key string) string

	mu    sync.RWMutex // protects known
	known map[string]bool
}

// NewClasses returns classes by a function of the key; nil: the text before the first slash, "" for
// a key without one.
func NewClasses(of func(key string) string) *Classes {
	if of == nil {
		of = func(key string) string {
			class, _, found := strings.Cut(key, "/")
			if !found {
				return ""
			}
			return class
		}
	}
	return &Classes{of: of, known: make(map[string]bool)}
}

// Of returns the key's class, in UTF-8.
func (c *Classes) Of(key string) string {
	class := strings.ToValidUTF8(c.of(key), "?")
	c.mu.RLock()
	known := c.known[class]
	c.mu.RUnlock()
	if known {
		return class
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known[class] && len(c.known) == MaxClasses {
		return "other"
	}
	c.known[class] = true
	return class
}

// ErrorType returns a short name of the reason why a caller has no lock, "" for nil.
func ErrorType(err error) string {
	for _, x := range []struct {
		is   error
		name string
	}{
		{nil, ""}, {coord.ErrLost, "lost"}, {coord.ErrHeld, "held"}, {coord.ErrClosed, "closed"}, {coord.ErrUnavailable, "unavailable"},
		{coord.ErrLocked, "locked"}, {context.DeadlineExceeded, "timeout"}, {context.Canceled, "canceled"},
	} {
		if errors.Is(err, x.is) {
			return x.name
		}
	}
	return "other"
}
