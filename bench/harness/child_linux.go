package harness

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// EndsWithUs makes a process get a signal when this one ends, however it does.
func EndsWithUs(attr *syscall.SysProcAttr, signal syscall.Signal) *syscall.SysProcAttr {
	if attr == nil {
		return &syscall.SysProcAttr{Pdeathsig: signal}
	}
	c := *attr
	c.Pdeathsig = signal
	return &c
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

// ProcessCPU is what the threads of the processes have used, to the nanosecond. Those that have
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
