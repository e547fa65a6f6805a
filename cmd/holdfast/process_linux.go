package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const getTermios = unix.TCGETS

// groupOfItsOwn makes a command's process group, and ends the command with the thread that starts it.
func groupOfItsOwn() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
