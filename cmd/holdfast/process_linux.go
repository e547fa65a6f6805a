package main

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stopping are the signals of a terminal's user that stop this process and the command.
var stopping = []os.Signal{syscall.SIGTSTP}

// groupOfItsOwn makes a command's process group. The command ends with the thread that starts it.
func groupOfItsOwn() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// inBackground calls f, which may use the terminal while another process group has it: the system
// would stop this process for that (SIGTTOU).
func inBackground(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.Sigset_t
	if unix.PthreadSigmask(unix.SIG_BLOCK, setOf(syscall.SIGTTOU), &before) == nil {
		defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil) }()
	}
	f()
}

// setOf returns the set with one signal.
func setOf(s syscall.Signal) *unix.Sigset_t {
	var set unix.Sigset_t
	bits := uint(unsafe.Sizeof(set.Val[0])) * 8
	set.Val[(uint(s)-1)/bits] |= 1 << ((uint(s) - 1) % bits)
	return &set
}

// action is the system's struct sigaction, or more than it. Its first word is the action.
type action [16]uintptr

var (
	byDefault = action{0} // SIG_DFL
	ignored   = action{1} // SIG_IGN
)

// setAction sets a signal's action in this process, and returns the one before. Package signal
// cannot bring the default action of SIGTSTP back.
func setAction(s syscall.Signal, a *action) (before action, err error) {
	const sizeOfSet = 8
	_, _, failed := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(a)),
		uintptr(unsafe.Pointer(&before)), sizeOfSet, 0, 0)
	if failed != 0 {
		return before, failed
	}
	return before, nil
}

// stopGroup stops this process's group as Ctrl-Z does, and returns when this process was continued.
// The system stops no process of an orphaned group, which no shell waits for: then it returns at
// once.
func stopGroup() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := setAction(syscall.SIGTSTP, &ignored)
	if err != nil {
		return
	}
	_ = unix.Kill(0, syscall.SIGTSTP) // the others
	if _, err := setAction(syscall.SIGTSTP, &byDefault); err == nil {
		_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), syscall.SIGTSTP) // it stops all threads
	}
	_, _ = setAction(syscall.SIGTSTP, &before)
}
