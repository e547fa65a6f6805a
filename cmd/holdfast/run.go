//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package main

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
)

// moment is the time for a stopped command's children, such as a pager, to set the terminal right
// before they are stopped as well.
const moment = 100 * time.Millisecond

// watched is a command that runs under a lock.
type watched struct {
	*process
	x      *execution
	over   context.Context  // of the lock
	losing <-chan struct{}  // closed when the lock is lost; nil once that was noticed
	kill   <-chan time.Time // when it is killed
	pause  <-chan time.Time // when this process stops, too
}

// run runs the command until it has ended. It is ended if the lock is lost, which lost tells: the
// command may end with statusLost by itself.
func (x *execution) run(l hold, env, args []string) (lost bool, err error) {
	x.takeOver()
	defer x.handBack()
	x.forget()
	switch {
	case x.waits.Err() != nil:
		return false, context.Cause(x.waits)
	case l.Context().Err() != nil: // this process was stopped for long
		return true, &statusError{statusLost, fmt.Errorf("the lock was lost before the command ran: %w", context.Cause(l.Context()))}
	}
	p, err := startProcess(args, append(os.Environ(), env...), x.terminal)
	if err != nil {
		return false, err
	}
	defer p.release()
	w := &watched{process: p, x: x, over: l.Context()}
	w.losing = w.over.Done()
	for {
		w.await()
		switch n, number := p.look(); {
		case n == ended:
			return w.end(number)
		case n == stopped && w.losing != nil && p.stops(syscall.Signal(number), w.over):
			w.pause = time.After(moment)
		}
	}
}

// forget obeys the signals that came before the command ran: they are not its own.
func (x *execution) forget() {
	for {
		select {
		case <-x.continued:
		case got := <-x.signals:
			x.obey(got)
		default:
			return
		}
	}
}

// await waits until there may be news of the command, or another event, and handles that.
func (w *watched) await() {
	select {
	case got := <-w.x.signals:
		w.x.note(got)
		w.signal(got.(syscall.Signal))
	case <-w.x.continued:
		w.pause = nil
		w.resume(w.over)
	case <-w.x.children:
	case <-w.losing:
		w.losing, w.pause = nil, nil
		w.kill = time.After(w.x.killAfter)
		w.signal(syscall.SIGTERM)
		w.signal(syscall.SIGCONT) // a stopped one would not notice
		why := printable(context.Cause(w.over).Error())
		inBackground(func() { fmt.Fprintln(os.Stderr, "holdfast: ending the command:", why) })
	case <-w.kill:
		w.signal(syscall.SIGKILL)
	case <-w.pause:
		w.pause = nil
		w.suspend(w.over, w.x.continued)
	}
}

// end returns the result of this process after the command has ended.
func (w *watched) end(status int) (lost bool, err error) {
	switch {
	case w.losing == nil:
		w.signal(syscall.SIGKILL) // children that it has left behind
		err := fmt.Errorf("the lock was lost, and the command ended: %w", context.Cause(w.over))
		return true, &statusError{statusLost, err}
	case status == 0:
		return false, nil
	}
	return false, w.death(&statusError{status, nil})
}

// death returns the error that ends this process by Ctrl-C, or Ctrl-\, if that has ended the
// command, and else e.
func (w *watched) death(e *statusError) error {
	interrupted := w.killed == syscall.SIGINT
	switch {
	case (interrupted || w.killed == syscall.SIGQUIT) && w.x.asked != w.killed && w.terminal.has(w.pid):
		return &deathError{e, w.killed, true}
	case interrupted && w.x.asked == w.killed && w.terminal != nil:
		return &deathError{e, w.killed, false}
	}
	return e
}
