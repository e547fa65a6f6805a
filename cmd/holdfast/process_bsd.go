//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const getTermios = unix.TIOCGETA

// groupOfItsOwn makes a command's process group.
func groupOfItsOwn() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
