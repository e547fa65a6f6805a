//go:build linux

package main

import (
	_ "embed"
	"encoding/binary"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-go/holdfast/internal/netns"
)

// A Redis server can be given a wall clock of its own, by a library that takes the place of the C library's functions, if there is a
// C compiler. A Go program asks the kernel itself: nodes have the machine's clock. (A time namespace would help neither: it
// has no wall clock, and the offset of its monotonic one is fixed when the first process starts in it.)
//
//go:embed clock/shim.c
var clockSource []byte

// clockLibrary makes the library, or returns nothing without a compiler.
func clockLibrary(dir string) string {
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if os.WriteFile(source, clockSource, 0o600) != nil || netns.Run("", "cc", "-O2", "-shared", "-fPIC", "-o", library, source) != nil {
		return ""
	}
	return library
}

// A serverClock is how far the clock of a server is ahead of the machine's: a file, which the server maps.
type serverClock string

func newServerClock(dir string) (serverClock, error) {
	c := serverClock(filepath.Join(dir, "clock"))
	return c, os.WriteFile(string(c), make([]byte, 8), 0o600)
}

func (c serverClock) env(library string) []string {
	return []string{"LD_PRELOAD=" + library, "HOLDFAST_CHAOS_CLOCK=" + string(c)}
}

// set puts the clock ahead, at once. The file is written in place.
func (c serverClock) set(ahead time.Duration) error {
	f, err := os.OpenFile(string(c), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead)), 0)
	return err
}
