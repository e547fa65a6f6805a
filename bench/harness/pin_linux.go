package harness

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Cores lists the CPUs that this process may use.
func Cores() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	var list []int
	for i := range len(set) * strconv.IntSize {
		if set.IsSet(i) {
			list = append(list, i)
		}
	}
	return list, nil
}

// Pin binds all threads of a process to a core until undo is called.
func Pin(pid, core int) (undo func() error, err error) {
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &before); err != nil {
		return nil, err
	}
	one.Set(core)
	if err := setAll(pid, &one); err != nil {
		return nil, errors.Join(err, setAll(pid, &before))
	}
	return func() error { return setAll(pid, &before) }, nil
}

func setAll(pid int, set *unix.CPUSet) error {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err == nil {
			err = unix.SchedSetaffinity(tid, set)
		}
		if err != nil && !errors.Is(err, unix.ESRCH) { // ended meanwhile
			return fmt.Errorf("pin thread %s of process %d: %w", t.Name(), pid, err)
		}
	}
	return nil
}

// onCore calls f on a thread bound to a core. A process that f starts is bound to it from the
// beginning, with all its threads, so a Go program in it sees one CPU.
func onCore(core int, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	one.Set(core)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("pin to core %d: %w", core, err)
	}
	err := f()
	return errors.Join(err, unix.SchedSetaffinity(0, &before))
}
