package presence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
)

// A Watcher is a connection to the sign of a process. The caller has to close it.
type Watcher struct {
	name string
	turn chan struct{} // is full while Ended runs
	line *os.File      // connected
	next *os.File      // of the same network namespace; asks for the name again
}

// Watch connects to the sign of a process, which lives at this moment. ECONNREFUSED says that no
// process here shows the name: that is no proof of an end. Other errors tell nothing of it.
func Watch(name string) (*Watcher, error) {
	runtime.LockOSThread() // both sockets are of the namespace of one thread
	defer runtime.UnlockOSThread()
	w := &Watcher{name: name, turn: make(chan struct{}, 1)}
	for _, f := range []**os.File{&w.line, &w.next} {
		fd, err := socket()
		if err != nil {
			w.Close()
			return nil, fmt.Errorf("presence: socket: %w", err)
		}
		*f = os.NewFile(uintptr(fd), "presence")
	}
	if err := connect(w.line, name); err != nil {
		w.Close()
		return nil, fmt.Errorf("presence: watch %q: %w", name, err)
	}
	return w, nil
}

// connect connects a socket, at once or not at all.
func connect(f *os.File, name string) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	to, answer := address(name), error(nil)
	err = c.Control(func(fd uintptr) {
		for answer = syscall.EINTR; answer == syscall.EINTR; {
			answer = syscall.Connect(int(fd), to)
		}
	})
	return errors.Join(err, answer)
}

var (
	errLives = errors.New("the connection broke, and a process shows the name")
	errSaid  = errors.New("a stranger has the name: a sign says nothing")
)

// Ended blocks until the process has ended: nil is the proof. It returns ctx's cause when ctx ends,
// and may be called again. Any other error says that the connection broke without a proof: the
// caller closes the watcher, and may watch anew. Calls of several goroutines take turns.
func (w *Watcher) Ended(ctx context.Context) error {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err := w.broken(ctx)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return context.Cause(ctx)
	case err == nil:
		err = errSaid
	case !errors.Is(err, os.ErrClosed):
		if err = connect(w.next, w.name); err == nil {
			err = errLives
		}
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	return fmt.Errorf("presence: no proof of the end of %q: %w", w.name, err)
}

// broken waits for the connection to break. os.ErrDeadlineExceeded says that ctx ended before.
func (w *Watcher) broken(ctx context.Context) error {
	if ctx.Err() != nil {
		return os.ErrDeadlineExceeded
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = w.line.SetReadDeadline(time.Unix(1, 0)) // it may have been closed
	})
	_, err := w.line.Read(make([]byte, 1))
	if !stop() {
		<-done
		_ = w.line.SetReadDeadline(time.Time{}) // for the next call
	}
	return err
}

// Close ends the watch, and a call of Ended under way. It may be called again.
func (w *Watcher) Close() {
	_ = w.line.Close() // a nil file's is an error, too
	_ = w.next.Close()
}
