package coord

import (
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// threadTime returns the processor time that this thread has had.
func threadTime(tb testing.TB) time.Duration {
	tb.Helper()
	var t syscall.Timespec
	if _, _, err := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 3, uintptr(unsafe.Pointer(&t)), 0); err != 0 { // CLOCK_THREAD_CPUTIME_ID
		tb.Fatal(err)
	}
	return time.Duration(t.Nano())
}
