package reexec

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// A Process is a program that was started and writes to a log. It dies with this process. Its
// methods are safe for concurrent use.
type Process struct {
	cmd   *exec.Cmd
	in    io.Closer
	ended chan struct{}
	err   error // how it ended, valid then
}

// Again is Run of this same program, behind a command that becomes it, with its order in a
// variable.
func Again(log string, in []string, variable, order string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return Run(log, []string{variable + "=" + order}, append(append([]string{}, in...), self)...)
}

// Run starts a program with more in its environment. Its output is appended to a file.
func Run(log string, env []string, args ...string) (*Process, error) {
	p := &Process{cmd: exec.Command(args[0], args[1:]...), ended: make(chan struct{})}
	f, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = append(os.Environ(), env...), f, f
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	started := make(chan error, 1)
	go func() { // ends with the process
		runtime.LockOSThread() // the process dies with the thread
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		if started <- err; err == nil {
			p.err = p.cmd.Wait()
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// Signal sends a signal, which a process that has ended does not get.
func (p *Process) Signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// Kill ends the process as a crash does, and waits for that.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.ended
}

// Ended tells whether the process has ended, and how.
func (p *Process) Ended() (bool, error) {
	select {
	case <-p.ended:
		return true, p.err
	default:
		return false, nil
	}
}

// End lets the process end in order, which it does when its input ends, or by a signal. After the
// limit SIGQUIT shows in its log where its goroutines are. End may be called again.
func (p *Process) End(limit time.Duration, signals ...os.Signal) error {
	_ = p.in.Close()
	for _, s := range signals {
		p.Signal(s)
	}
	select {
	case <-p.ended:
		return p.err
	case <-time.After(limit):
	}
	p.Signal(syscall.SIGQUIT)
	select {
	case <-p.ended:
	case <-time.After(limit):
		p.Kill()
	}
	return fmt.Errorf("has not ended after %v: %w", limit, p.err)
}
