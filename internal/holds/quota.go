//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// period is that of quotas, as container runtimes set it.
const period = 100_000 // µs

// limit puts a process into a control group of its own, which gets a part of a core. It needs root,
// on Linux. remove is for when the process has ended.
func limit(pid int, cores float64) (remove func(), err error) {
	name, quota := fmt.Sprint("holds-", pid), strconv.Itoa(int(cores*period))
	dir, file := filepath.Join("/sys/fs/cgroup", name), "cpu.max" // version 2
	text := quota + " " + strconv.Itoa(period)
	if _, err := os.Stat("/sys/fs/cgroup/cpu"); err == nil { // version 1
		dir, file, text = filepath.Join("/sys/fs/cgroup/cpu", name), "cpu.cfs_quota_us", quota
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("a control group: %w", err)
	}
	remove = func() { _ = os.Remove(dir) }
	for _, w := range [][2]string{{file, text}, {"cgroup.procs", strconv.Itoa(pid)}} {
		if err := os.WriteFile(filepath.Join(dir, w[0]), []byte(w[1]), 0o600); err != nil {
			remove()
			return nil, fmt.Errorf("a control group: %w", err)
		}
	}
	return remove, nil
}
