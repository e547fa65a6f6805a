// Package unit finds durations that were written without their unit: TTL: 24 is 24 ns.
package unit

import (
	"fmt"
	"time"
)

// Check returns an error if d is positive and less than least, which no use of the setting can
// mean. usual is how the setting is written, such as "24 * time.Hour". Whether d may be 0 or
// negative is up to the caller.
func Check(setting string, d, least time.Duration, usual string) error {
	if d <= 0 || d >= least {
		return nil
	}
	return fmt.Errorf("%s %w", setting, Short(d, least, usual))
}

// Short is the error of Check without the name of the setting, and nil where that is nil.
func Short(d, least time.Duration, usual string) error {
	if d <= 0 || d >= least {
		return nil
	}
	return fmt.Errorf("is %v, must be at least %v: a number without a unit is in nanoseconds, write it as in %s", d, least, usual)
}
