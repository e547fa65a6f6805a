//go:build linux

package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// moment is a time of CLOCK_MONOTONIC in nanoseconds: all processes of the machine agree on it.
type moment int64

func now() moment {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // there is no machine without it
	}
	return moment(t.Nano())
}

func (m moment) sub(n moment) time.Duration { return time.Duration(m - n) }
func (m moment) add(d time.Duration) moment { return m + moment(d) }
func (m moment) since(begin moment) string  { return fmt.Sprintf("%.3fs", m.sub(begin).Seconds()) }
