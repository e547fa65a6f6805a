package redistest

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

// A Redis server can be given a wall clock of its own, if there is a C compiler: by a library that
// takes the place of the C library's functions. A Go program asks the kernel itself: nodes have
// the machine's clock. (A time namespace would help neither: it has no wall clock, and the offset
// of its monotonic one is fixed when the first process starts in it.)
//
//go:embed clock/shim.c
var clockSource []byte

// ClockLibrary writes the library to dir, and returns its name. It fails where there is no
// compiler, or no Linux.
func ClockLibrary(dir string) (string, error) {
	text, err := compiledClock()
	if err != nil {
		return "", fmt.Errorf("a server has the machine's clock: %w", err)
	}
	library := filepath.Join(dir, "clock.so")
	if err := os.WriteFile(library, text, 0o600); err != nil {
		return "", err
	}
	return library, nil
}

// compiledClock compiles the library once in a process.
var compiledClock = sync.OnceValues(func() ([]byte, error) {
	if runtime.GOOS != "linux" {
		return nil, errors.ErrUnsupported
	}
	dir, err := os.MkdirTemp("", "clock")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return nil, err
	}
	if out, err := exec.Command("cc", "-O2", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cc: %w\n%s", err, out)
	}
	return os.ReadFile(library)
})

// A Clock is how far the clock of a server is ahead of the machine's: a file, which the server
// maps.
type Clock string

// NewClock makes a clock in dir that is not ahead.
func NewClock(dir string) (Clock, error) {
	c := Clock(filepath.Join(dir, "clock"))
	return c, os.WriteFile(string(c), make([]byte, 8), 0o600)
}

// Env returns the environment of a server that is to have the clock.
func (c Clock) Env(library string) []string {
	return []string{"LD_PRELOAD=" + library, "HOLDFAST_CHAOS_CLOCK=" + string(c)}
}

// Set puts the clock ahead, at once. The file is written in place.
func (c Clock) Set(ahead time.Duration) error {
	f, err := os.OpenFile(string(c), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead)), 0)
	return err
}

// StartClocked is Start of a server that has a clock of its own. Without a C compiler it skips the
// test, except where CI is set.
func StartClocked(t testing.TB, args ...string) (*Server, Clock) {
	t.Helper()
	dir := t.TempDir()
	library, err := ClockLibrary(dir)
	if err != nil {
		if os.Getenv("CI") != "" && runtime.GOOS == "linux" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	c, err := NewClock(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, Place{Env: c.Env(library)}, freeAddr, args)
	return s, c
}
