//go:build linux

package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// A process is one that was started here. It dies with this one.
type process struct {
	cmd  *exec.Cmd
	in   io.Closer
	done chan struct{} // closed when it has ended; err is valid then
	err  error
}

// begun starts a process. What it prints is appended to a file.
func begun(log string, env []string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(args[0], args[1:]...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	f, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p.cmd.Stdout, p.cmd.Stderr = f, f
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the process dies with the thread
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		if started <- err; err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// end lets the process end in order, which it does when its input ends, or by a signal. It may be called again.
func (p *process) end(signals ...os.Signal) error {
	_ = p.in.Close()
	for _, s := range signals {
		_ = p.cmd.Process.Signal(s)
	}
	select {
	case <-p.done:
		return p.err
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
		return errors.New("it does not end")
	}
}
