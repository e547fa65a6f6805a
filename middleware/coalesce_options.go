package middleware

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"
)

// CoalesceOptions are the options of [Coalesce]. The zero value of each field means its default,
// and a nil *CoalesceOptions means all defaults.
type CoalesceOptions struct {
	// Ignore are request headers that need not be the same, besides those that never need to be
	// (see [Coalesce]). Only headers that no answer depends on, for any user, belong here:
	// User-Agent perhaps, and never one with a credential. Default: none.
	Ignore []string

	// AcrossTargets lets requests of different hosts, paths and queries share an answer if their
	// key is the same. Default: these have to be the same as well.
	AcrossTargets bool

	// MaxAnswer is the largest body of an answer that is shared, in bytes; it is held in memory,
	// once for all. Default 1 MiB. Negative: only answers without a body are shared.
	MaxAnswer int

	// Lock makes each run hold the key's lock, as with [Serialize]. The processes of the namespace
	// then run the handler one after another, also without [Route]. It is for handlers that fill a
	// cache where the next one finds the answer. Default: no lock.
	Lock bool

	// Observe is called for each request that has a key, once it is known how it is answered. It
	// may be called concurrently. Nil: not.
	Observe func(r *http.Request, how Coalesced)

	// RetryAfter is the Retry-After for clients that were not answered in time, in whole seconds,
	// rounded up. Default 1 s. Negative: nothing.
	RetryAfter time.Duration

	// Problem answers a request that is not let through. It may be called concurrently. Default
	// [WriteProblem].
	Problem func(w http.ResponseWriter, r *http.Request, p Problem)

	// Logger gets a record for each error of the program, and one if a handler returns without an
	// answer. Nil: silent.
	Logger *slog.Logger
}

func (o *CoalesceOptions) filled() CoalesceOptions {
	f := CoalesceOptions{}
	if o != nil {
		f = *o
	}
	f.Ignore = slices.Clone(f.Ignore)
	setDefault(&f.MaxAnswer, 1<<20)
	f.MaxAnswer = max(f.MaxAnswer, 0)
	setDefault(&f.RetryAfter, time.Second)
	if f.Observe == nil {
		f.Observe = func(*http.Request, Coalesced) {}
	}
	return f
}

func (o *CoalesceOptions) validate() error {
	var all []error
	for i, name := range o.Ignore {
		all = append(all, checkHeader("CoalesceOptions.Ignore", name))
		if name == "" {
			all = append(all, errors.New("middleware: CoalesceOptions.Ignore has an empty name"))
		}
		o.Ignore[i] = http.CanonicalHeaderKey(name)
	}
	return errors.Join(all...)
}

// Coalesced is a request's part in a run of [Coalesce].
type Coalesced uint8

const (
	CoalescedFirst  Coalesced = iota + 1 // it ran the handler, for itself and for those that came meanwhile
	CoalescedShared                      // it got the answer of another request's run
	CoalescedAlone                       // it waited for a run, the answer was not to be shared, and it ran the handler itself
	CoalescedLeft                        // its client went away, or its time was up, while it waited for a run
)

func (c Coalesced) String() string {
	names := [...]string{"", "first", "shared", "alone", "left"}
	if int(c) < len(names) && c != 0 {
		return names[c]
	}
	return fmt.Sprintf("Coalesced(%d)", uint8(c))
}
