package harness

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cores lists the CPUs that this process may use.
func cores() ([]int, error) {
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

// Children lists the processes that a process has started, those that they have started, and so on.
func Children(pid int) (list []int) {
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, t := range threads {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				list = append(append(list, child), Children(child)...)
			}
		}
	}
	return list
}

// ProcessCPU returns the CPU time of the processes' threads, to the nanosecond. Threads that have
// ended do not count.
func ProcessCPU(pids []int) (total time.Duration) {
	for _, pid := range pids {
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		for _, t := range threads {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, t.Name()))
			if first, _, ok := strings.Cut(string(text), " "); ok {
				n, _ := strconv.ParseInt(first, 10, 64)
				total += time.Duration(n)
			}
		}
	}
	return total
}
