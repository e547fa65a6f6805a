package coord

import (
	"database/sql/driver"
	"fmt"
	"log/slog"
	"math"
	"strconv"
)

// A Fence is a fencing token: the number of a lock, which is higher than the numbers of all earlier
// locks of the key. A resource that keeps the highest Fence that it has seen can refuse the late
// write of a holder that lost the lock; docs/fencing.md shows how. The zero Fence is no token.
//
// A Fence is a parameter of an SQL statement as it is, for a column of 64 bits. As text, in JSON
// and in logs it is a string of decimal digits: most programs other than Go round JSON numbers
// beyond 2^53, and every Fence is larger than that.
type Fence uint64

// String returns the token in decimal.
func (f Fence) String() string { return strconv.FormatUint(uint64(f), 10) }

// Value implements [driver.Valuer]. A token of 2^63 or more is an error: no SQL integer can hold
// it.
func (f Fence) Value() (driver.Value, error) {
	if f > math.MaxInt64 {
		return nil, fmt.Errorf("coord: token %d does not fit a signed integer of 64 bits", uint64(f))
	}
	return int64(f), nil
}

// LogValue implements [slog.LogValuer].
func (f Fence) LogValue() slog.Value { return slog.StringValue(f.String()) }

// MarshalText implements [encoding.TextMarshaler].
func (f Fence) MarshalText() ([]byte, error) { return strconv.AppendUint(nil, uint64(f), 10), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. It takes decimal digits only.
func (f *Fence) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return fmt.Errorf("coord: %q is no fencing token", text)
	}
	*f = Fence(n)
	return nil
}
