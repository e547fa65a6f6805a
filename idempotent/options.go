package idempotent

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast/internal/unit"
)

// Options are the options of [New]. The zero value of each field means its default, and nil means
// all defaults.
type Options struct {
	// Scope is put before each ID: the same ID in two scopes is two. Default: none.
	Scope string

	// Wait is for how long a call waits for another one with its ID to be over. Default 10 s; at
	// least 1 ms. Negative: not at all.
	Wait time.Duration

	// MaxWaiters is how many calls with one ID may wait in this process, besides the one that runs.
	// Default 32. Negative: no limit.
	MaxWaiters int

	// TTL is for how long a record is kept, from its last change; after that the ID is new. It has
	// to be longer than a message may be delivered again. Default 24 h; at least 1 s. It must not
	// be negative.
	TTL time.Duration

	// StoreTimeout is for how long one call of the store may take. Default 5 s; at least 1 ms. It
	// must not be negative.
	StoreTimeout time.Duration

	// Rerun runs a function with an unknown outcome again, in the place of ErrUnknown. For
	// functions that themselves see to it that nothing happens twice: by a unique key in a
	// database, or the token of the lock.
	Rerun bool

	// Logger gets a record for each run with an end that could not be stored. At the start it gets
	// one if the server of a [RedisStore] may run out of memory for locks, or evicts records. Nil:
	// silent.
	Logger *slog.Logger
}

func (o *Options) filled() Options {
	f := Options{}
	if o != nil {
		f = *o
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&f.Wait, 10 * time.Second}, {&f.TTL, 24 * time.Hour}, {&f.StoreTimeout, 5 * time.Second}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if f.MaxWaiters == 0 {
		f.MaxWaiters = 32
	}
	return f
}

func (o *Options) validate() error {
	var all []error
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"TTL", o.TTL}, {"StoreTimeout", o.StoreTimeout}} {
		if d.value < 0 {
			all = append(all, fmt.Errorf("idempotent: Options.%s is %v, must not be negative", d.name, d.value))
		}
	}
	return errors.Join(append(all, unit.Check("idempotent: Options.Wait", o.Wait, time.Millisecond, "10 * time.Second"),
		unit.Check("idempotent: Options.TTL", o.TTL, time.Second, "24 * time.Hour"),
		unit.Check("idempotent: Options.StoreTimeout", o.StoreTimeout, time.Millisecond, "5 * time.Second"))...)
}
