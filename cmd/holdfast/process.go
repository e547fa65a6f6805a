//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// forwarded are the signals that go to the command. Of these, ending end a wait for the lock, and
// asking ask the command to end: by SIGHUP many only read their configuration again.
var (
	forwarded = []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGCONT,
	}
	ending = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}
	asking = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}
)

// process is a command in a process group of its own, so that signals reach what it has started, too.
type process struct {
	pid  int
	done chan int // its exit status, as a shell tells it
}

// startProcess starts a command without a shell. On Linux it is killed when this process dies.
func startProcess(args, env []string) (*process, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = groupOfItsOwn()
	if _, err := unix.IoctlGetTermios(0, getTermios); err == nil { // it may read the terminal, and gets its Ctrl-C
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, 0
	}
	p := &process{done: make(chan int, 1)}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // until the command has ended: its parent is the thread, see groupOfItsOwn
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		if started <- err; err == nil {
			p.done <- statusOf(cmd.Wait())
		}
	}()
	if err := <-started; err != nil {
		status := statusNotRun
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			status = statusNotFound
		}
		return nil, &statusError{status, err}
	}
	return p, nil
}

func (p *process) signal(s syscall.Signal) { _ = syscall.Kill(-p.pid, s) }

// statusOf returns what a shell would have as the exit status.
func statusOf(err error) int {
	if err == nil {
		return 0
	}
	x, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		fmt.Fprintln(os.Stderr, "holdfast:", err)
		return statusFailed
	}
	if w, ok := x.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return statusSignal + int(w.Signal())
	}
	return x.ExitCode()
}
