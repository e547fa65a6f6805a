//go:build !linux || !amd64

package budget

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
)

// Round is the counts between two marks.
type Round struct {
	Steps, Reads, Calls int
	At                  map[uintptr]int
}

// Steps is not there on this platform.
func Steps(*exec.Cmd, int, func(Round) bool) ([]Round, error) {
	return nil, fmt.Errorf("budget: instructions are counted on linux/amd64, not on %s/%s: %w", runtime.GOOS, runtime.GOARCH, errors.ErrUnsupported)
}

// Mark begins and ends a round.
func Mark() { runtime.Breakpoint() }
