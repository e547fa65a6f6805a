//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// forwarded are the signals that go to the command. Of these, ending end a wait for the lock, and
// asking ask the command to end: by SIGHUP many only read their configuration again.
var (
	forwarded = []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
	}
	ending = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}
	asking = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}
)

// heeded returns these signals without those that this process ignores, as nohup, or "&" in a
// script, has made it: the command ignores them then, too. Package signal knows that of SIGHUP and
// SIGINT; SIGQUIT is ignored where SIGINT is, as "&" has both ignored.
func heeded(signals []os.Signal) []os.Signal {
	if signal.Ignored(syscall.SIGINT) {
		signal.Ignore(syscall.SIGQUIT)
	}
	return slices.DeleteFunc(slices.Clone(signals), signal.Ignored)
}

// process is a command in a process group of its own, so that signals reach its children, too.
type process struct {
	pid      int
	killed   syscall.Signal // the signal that has ended it; 0: none
	terminal *terminal      // nil: there is none
	gone     chan struct{}  // closed by release
}

// startProcess starts a command without a shell. On Linux it is killed when this process dies. The
// caller awaits SIGCHLD, asks look then, and calls release after the command's end.
func startProcess(args, env []string, t *terminal) (*process, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = groupOfItsOwn()
	if t.lendable() { // it may read the terminal, and gets its Ctrl-C and Ctrl-Z
		t.lent = true
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, t.fd
	}
	p := &process{terminal: t, gone: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // until the command has ended: its parent is the thread, see groupOfItsOwn
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if started <- err; err == nil {
			<-p.gone
		}
	}()
	if err := <-started; err != nil {
		t.takeBack(t.front()) // it may have failed after it got the terminal
		status := statusNotRun
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			status = statusNotFound
		}
		return nil, &statusError{status, err}
	}
	p.pid = cmd.Process.Pid
	_ = cmd.Process.Release() // look waits for it
	return p, nil
}

func (p *process) signal(s syscall.Signal) { _ = syscall.Kill(-p.pid, s) }

// release takes the terminal back from a command that has ended.
func (p *process) release() {
	p.terminal.takeBack(p.pid)
	close(p.gone)
}

// A deathError ends this process by a signal, as that has ended the command. By an exit with a
// status a shell would go on with its script.
type deathError struct {
	*statusError
	signal syscall.Signal
	group  bool // the command had the terminal: the signal has not come to this process's group yet
}

func (e *deathError) Unwrap() error { return e.statusError }

// die returns if this process is not to end by the signal.
func (e *deathError) die() {
	whom := os.Getpid()
	if e.group {
		whom = 0
	}
	switch {
	case signal.Ignored(e.signal):
	case e.signal == syscall.SIGQUIT, // the runtime would write the stacks of all goroutines
		os.Getpid() == 1: // of a container, which the kernel ends by no signal that it could have handled
		signal.Ignore(e.signal)
		_ = syscall.Kill(whom, e.signal)
	default:
		signal.Reset(e.signal)
		_ = syscall.Kill(whom, e.signal)
		time.Sleep(time.Second) // another thread may get it
	}
}

// news is a change of a command's state.
type news int

const (
	noNews  news = iota
	stopped      // by a signal
	ended        // with a status
)

// look returns the change of the command's state since the last look, with the signal or the
// status. It does not block. After ended it must not be called.
func (p *process) look() (n news, number int) {
	var s unix.WaitStatus
	pid, err := unix.Wait4(p.pid, &s, unix.WNOHANG|unix.WUNTRACED, nil)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "holdfast:", err)
		return ended, statusFailed
	case pid == 0:
		return noNews, 0
	case s.Exited():
		return ended, s.ExitStatus()
	case s.Signaled():
		p.killed = s.Signal()
		return ended, statusSignal + int(s.Signal())
	}
	return stopped, int(s.StopSignal())
}

// stops reports whether this process should stop because the command has, by signal s. One that
// wants the terminal goes on if it can have it. Without a terminal no shell notices: the lock is
// kept.
func (p *process) stops(s syscall.Signal, over context.Context) bool {
	t := p.terminal
	switch {
	case t == nil:
		return false
	case s == syscall.SIGTTIN || s == syscall.SIGTTOU:
		t.wanted = true
		if !t.lendable() && t.front() != p.pid {
			return true
		}
		p.resume(over)
		return false
	}
	return s == syscall.SIGTSTP || t.lent
}

// suspend stops this process's group because the command has stopped, and returns when a shell has
// continued it. It stops all of the command, as nothing renews the lock meanwhile.
func (p *process) suspend(over context.Context, continued <-chan os.Signal) {
	p.terminal.takeBack(p.pid)
	p.signal(syscall.SIGSTOP)
	if stopUntil(continued) || p.terminal.inFront() {
		p.resume(over)
	} // else no shell gives it the terminal: it stays stopped until SIGCONT comes
}

// stopUntil stops this process's group, and reports whether SIGCONT has continued it. In an
// orphaned group the system stops nothing, and no SIGCONT comes: then it blocks for a second.
func stopUntil(continued <-chan os.Signal) bool {
	select {
	case <-continued: // by an earlier one
	default:
	}
	stopGroup()
	select {
	case <-continued:
		return true
	case <-time.After(time.Second):
		return false
	}
}

// resume continues the command, unless the lock is over: then it is ended next.
func (p *process) resume(over context.Context) {
	p.terminal.lend(p.pid)
	if over.Err() == nil {
		p.signal(syscall.SIGCONT)
	}
}
