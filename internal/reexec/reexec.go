// Package reexec starts the running program again as a worker. That gets its order in an
// environment variable, and tasks by lines of JSON on its stdin.
package reexec

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// A Worker is a process that was started. The caller waits for Cmd after Out has ended. It reads
// Out itself, or gives the worker tasks.
type Worker struct {
	Cmd *exec.Cmd
	In  io.WriteCloser // its stdin
	Out io.Reader      // its stdout

	Limit time.Duration         // the longest silence about a task before the worker is killed; 0: any
	Step  func(done, total int) // is told how far a task is; nil: none

	tasks   *json.Encoder
	replies *json.Decoder
}

// Start starts a worker with the arguments, and the order, as JSON, in the variable. When ctx ends,
// the worker's stdin does, which makes it end by itself; if it has not after grace, it is killed.
func Start(ctx context.Context, variable string, order any, stderr io.Writer, grace time.Duration, args ...string) (*Worker, error) {
	text, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &Worker{Cmd: exec.CommandContext(ctx, program, args...)}
	w.Cmd.Env = append(os.Environ(), variable+"="+string(text))
	w.Cmd.Stderr = stderr
	if w.In, err = w.Cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if w.Out, err = w.Cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	w.Cmd.Cancel, w.Cmd.WaitDelay = w.In.Close, grace
	return w, w.Cmd.Start()
}

// Stop ends the worker by the end of its stdin, and waits for it.
func (w *Worker) Stop() error {
	_ = w.In.Close()
	return w.Cmd.Wait()
}

// Told returns the context of a worker, which ends by SIGTERM, or when its parent is gone.
func Told() (ctx context.Context, stop func()) {
	ctx, stop = signal.NotifyContext(context.Background(), syscall.SIGTERM)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	return ctx, stop
}
