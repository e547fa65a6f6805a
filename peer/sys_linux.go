//go:build linux && !race

package peer

import (
	"syscall"
	"unsafe"
)

// The calls do not wait, so the scheduler is not told of them. If it is, each one that follows a
// rest of the process wakes the runtime's monitor, a thread. That then looks every 20 us for a call
// that takes long. With a process per core that was a tenth of all time, and as much again for
// being interrupted by it.

func sysWrite(fd uintptr, b []byte) (int, error) { return sys(syscall.SYS_WRITE, fd, b) }
func sysRead(fd uintptr, b []byte) (int, error)  { return sys(syscall.SYS_READ, fd, b) }

func sys(call, fd uintptr, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
