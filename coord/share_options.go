package coord

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/internal/unit"
)

// ShareOptions are the options of [Share]. The zero value of each field means its default, and a
// nil *ShareOptions means all defaults.
type ShareOptions[T any] struct {
	// TTL is for how long a result is used, from when it was stored. Default 10 s; at least 1 ms.
	TTL time.Duration

	// RefreshAhead is about how long before the end of TTL a result is refreshed. A caller that
	// finds it gets it at once, and may start a run of fn in the background, one in the whole
	// cluster: by chance, which rises towards the end. The mean of the lead is RefreshAhead, if
	// callers are many; keys that were stored at the same moment are not refreshed at the same
	// moment. It should be longer than fn takes; at least 1 ms. If the run fails, or panics, that
	// is told to Options.Logger only. 0: callers wait for a new result when the old one has
	// expired.
	RefreshAhead time.Duration

	// StaleOnError is for how long after TTL a result is returned, without an error, when fn has
	// failed. 0: not at all; at least 1 ms. Every flight runs fn first, one after another in the
	// whole cluster, so fn should not take long to fail.
	StaleOnError time.Duration

	// KeepErrors are errors that say as much as a result does, such as sql.ErrNoRows. When fn fails
	// with an error that Is one of them, that is stored for ErrorTTL in the place of a result. It
	// also replaces a stale one that StaleOnError would permit: that is not returned then, even if
	// the store does not answer. A caller that asks meanwhile gets a [*KeptError], which Is the
	// same one, and fn does not run. They are known to other processes by their texts, which must
	// differ, and must not be empty. None: no error is kept.
	KeepErrors []error

	// ErrorTTL is for how long such an error is used. Default TTL; at least 1 ms.
	ErrorTTL time.Duration

	// Fresh, if not nil, reports whether a stored result may be used. One that it rejects is
	// treated as if it were not there, also as a stale one. It is not asked about the result that
	// fn has just returned.
	Fresh func(T) bool

	// Encode and Decode are how a T is stored; both or none are set. Default encoding/json, so
	// other callers than those of the flight that ran fn get a T without its unexported fields. A
	// result that Decode fails on is not used: if T is an interface with methods, which
	// encoding/json cannot decode, every flight runs fn.
	Encode func(T) ([]byte, error)
	Decode func([]byte) (T, error)

	// MaxSize is how many bytes an encoded result may have: a larger one is not stored, and Share
	// returns [ErrTooLarge] beside it. Default 1 MiB.
	MaxSize int

	// Store keeps the results. All processes must use the same. Nil: the arbiter does, in the
	// namespace, if it is a [fallback.ResultStore]; that of package redisarbiter and
	// [fallback.Memory] are. Results and locks share a server then; at maxmemory it grants no lock
	// of a key without an owner. Where clients choose the keys, keep results elsewhere, or give the
	// server room for keys per TTL x MaxSize, of TTL and StaleOnError together. A Redis with a
	// maxmemory-policy of volatile-* evicts results instead, which is logged.
	Store ShareStore
}

// filled returns a copy with all defaults in place, or an error about a wrong field.
func (o *ShareOptions[T]) filled() (ShareOptions[T], error) {
	var f ShareOptions[T]
	if o != nil {
		f = *o
	}
	setDefault(&f.TTL, 10*time.Second)
	setDefault(&f.ErrorTTL, f.TTL)
	setDefault(&f.MaxSize, 1<<20)
	switch {
	case f.TTL < time.Millisecond:
		return f, fmt.Errorf("coord: ShareOptions.TTL is %v, must be at least 1ms", f.TTL)
	case f.RefreshAhead < 0 || f.RefreshAhead >= f.TTL:
		return f, fmt.Errorf("coord: ShareOptions.RefreshAhead is %v, must be less than TTL, %v, and not negative", f.RefreshAhead, f.TTL)
	case f.ErrorTTL < time.Millisecond:
		return f, fmt.Errorf("coord: ShareOptions.ErrorTTL is %v, must be at least 1ms", f.ErrorTTL)
	case f.StaleOnError < 0:
		return f, fmt.Errorf("coord: ShareOptions.StaleOnError is %v, must not be negative", f.StaleOnError)
	case f.MaxSize < 0:
		return f, fmt.Errorf("coord: ShareOptions.MaxSize is %d, must not be negative", f.MaxSize)
	case (f.Encode == nil) != (f.Decode == nil):
		return f, errors.New("coord: ShareOptions.Encode and Decode must be set both, or none")
	case f.Encode == nil:
		f.Encode = func(v T) ([]byte, error) { return json.Marshal(v) }
		f.Decode = func(b []byte) (v T, err error) {
			err = json.Unmarshal(b, &v)
			return v, err
		}
	}
	if err := errors.Join(unit.Check("coord: ShareOptions.RefreshAhead", f.RefreshAhead, time.Millisecond, "2 * time.Second"),
		unit.Check("coord: ShareOptions.StaleOnError", f.StaleOnError, time.Millisecond, "time.Minute")); err != nil {
		return f, err
	}
	texts := make(map[string]bool)
	for i, err := range f.KeepErrors {
		if err == nil || err.Error() == "" || texts[err.Error()] {
			return f, fmt.Errorf("coord: ShareOptions.KeepErrors[%d] is nil, or its text is empty or that of another one", i)
		}
		texts[err.Error()] = true
	}
	f.StaleOnError = min(f.StaleOnError, math.MaxInt64-f.TTL) // the sum is a duration as well
	return f, nil
}
