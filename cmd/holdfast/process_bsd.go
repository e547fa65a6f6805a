//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// stopping is empty: SIGTSTP has its default action, as package signal cannot bring that back.
var stopping []os.Signal

// groupOfItsOwn makes a command's process group.
func groupOfItsOwn() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// inBackground calls f, which may use the terminal while another process group has it: the system
// would stop this process for that (SIGTTOU). Commands that start later ignore the signal, too.
func inBackground(f func()) {
	signal.Ignore(syscall.SIGTTOU)
	f()
}

// stopGroup stops this process's group as Ctrl-Z does. It may return a moment before this process
// is stopped. The system stops no process of an orphaned group, which no shell waits for.
func stopGroup() { _ = unix.Kill(0, syscall.SIGTSTP) }
