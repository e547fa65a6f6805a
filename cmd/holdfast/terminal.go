//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package main

import "golang.org/x/sys/unix"

// terminal is this process's controlling terminal. It sends Ctrl-C and Ctrl-Z to one process group,
// which alone may read it. A shell gives it to this process's group, which lends it to the
// command's. Without a terminal, nil, nothing is lent.
type terminal struct {
	fd     int
	wanted bool // the command should have it whenever this process's group has it
	lent   bool
}

// openTerminal returns the controlling terminal, nil: there is none. A command in a pipeline gets
// it only when it asks: another of the pipeline, such as a pager, may read it.
func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	t := &terminal{fd: fd}
	t.wanted = isTerminal(0) && isTerminal(1)
	return t
}

// isTerminal reports whether a descriptor is the controlling terminal.
func isTerminal(fd int) bool {
	_, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil
}

func (t *terminal) close() {
	if t != nil {
		_ = unix.Close(t.fd)
	}
}

// front returns the process group that has the terminal, 0: there is none.
func (t *terminal) front() int {
	if t == nil {
		return 0
	}
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// inFront reports whether this process's group has the terminal.
func (t *terminal) inFront() bool { return t != nil && t.front() == unix.Getpgrp() }

// lendable reports whether a command gets the terminal now.
func (t *terminal) lendable() bool { return t.inFront() && t.wanted }

// lend gives the terminal to a command's group.
func (t *terminal) lend(group int) {
	if t.lendable() {
		t.give(group)
		t.lent = true
	}
}

// takeBack gives the terminal to this process's group again, if it was lent to the command's and
// that still has it.
func (t *terminal) takeBack(group int) {
	if t == nil {
		return
	}
	if t.has(group) {
		t.give(unix.Getpgrp())
	}
	t.lent = false
}

// has reports whether the terminal is lent to a command's group, which still has it.
func (t *terminal) has(group int) bool { return t != nil && t.lent && t.front() == group }

// give fails if the group or the terminal is gone, which ends the need for it, too.
func (t *terminal) give(group int) {
	inBackground(func() { _ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) })
}
