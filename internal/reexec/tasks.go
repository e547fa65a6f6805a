package reexec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Tasks are the tasks of a program's workers, by name. H is the state that a worker keeps from task
// to task. The zero value has none.
type Tasks[H any] struct {
	byName map[string]func(context.Context, H, json.RawMessage) (any, error)
}

// A Task is one of them: the parent gives a T, and the worker answers with an A. Both travel as
// JSON.
type Task[T, A any] struct{ name string }

// Add adds a task. It is for the variables of packages: it panics if another task has the name.
func Add[H, T, A any](to *Tasks[H], name string, do func(context.Context, H, T) (A, error)) Task[T, A] {
	if to.byName == nil {
		to.byName = make(map[string]func(context.Context, H, json.RawMessage) (any, error))
	}
	if to.byName[name] != nil {
		panic("reexec: two tasks are called " + name)
	}
	to.byName[name] = func(ctx context.Context, host H, text json.RawMessage) (any, error) {
		var t T
		if err := json.Unmarshal(text, &t); err != nil {
			return nil, err
		}
		return do(ctx, host, t)
	}
	return Task[T, A]{name}
}

// told is the line for a task.
type told struct {
	Do   string          `json:"do"`
	With json.RawMessage `json:"with"`
}

// reply is a line of a worker: a step of the task under way, or its end.
type reply struct {
	Step  *step           `json:"step,omitempty"`
	Done  json.RawMessage `json:"done,omitempty"`
	Error string          `json:"error,omitempty"`
}

// step is how far a task is.
type step struct{ Done, Total int }

// A Line is a worker's connection to its parent.
type Line struct {
	in  *json.Decoder
	out *json.Encoder
}

// NewLine returns a line that reads tasks from in and writes answers to out.
func NewLine(in io.Reader, out io.Writer) *Line {
	return &Line{json.NewDecoder(in), json.NewEncoder(out)}
}

// At tells the parent that done of total parts of the task under way were done. The task's
// goroutine calls it.
func (l *Line) At(done, total int) {
	_ = l.out.Encode(reply{Step: &step{done, total}}) // a parent that is gone has closed the input
}

var errStopped = errors.New("stopped by the end of the input")

// Serve does the tasks of a line, one after the other, until its input ends. Then it cancels the
// context of the task under way, and ends the process if the task has not returned after grace:
// that has no parent to answer to.
func (ts *Tasks[H]) Serve(l *Line, host H, grace time.Duration) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	lines := make(chan told)
	go func() { // ends with the input
		defer close(lines)
		for {
			var t told
			if l.in.Decode(&t) != nil {
				cancel(errStopped)
				time.AfterFunc(grace, func() { os.Exit(1) })
				return
			}
			lines <- t
		}
	}()
	for t := range lines {
		var r reply
		var a any
		do, err := ts.byName[t.Do], error(nil)
		if do == nil {
			err = fmt.Errorf("no task %q", t.Do)
		} else {
			a, err = do(ctx, host, t.With)
		}
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			r.Done, err = json.Marshal(a)
		}
		if err != nil {
			r.Error = err.Error()
		}
		if err := l.out.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// Do gives a worker the task and waits for its answer. It kills a worker that is silent for
// w.Limit. One goroutine at a time gives a worker tasks.
func (t Task[T, A]) Do(w *Worker, with T) (a A, err error) {
	text, err := json.Marshal(with)
	if err != nil {
		return a, err
	}
	if w.tasks == nil {
		w.tasks, w.replies = json.NewEncoder(w.In), json.NewDecoder(w.Out)
	}
	var hung atomic.Bool
	alive := func() {}
	if w.Limit > 0 {
		limit := time.AfterFunc(w.Limit, func() {
			hung.Store(true)
			_ = w.Cmd.Process.Kill() // it may have ended
		})
		defer limit.Stop()
		alive = func() { limit.Reset(w.Limit) }
	}
	if err := w.tasks.Encode(told{t.name, text}); err != nil {
		return a, err
	}
	for {
		var r reply
		switch err := w.replies.Decode(&r); {
		case err != nil && hung.Load():
			return a, fmt.Errorf("worker %d was killed after %v in %s: %w", w.Cmd.Process.Pid, w.Limit, t.name, err)
		case err != nil:
			return a, fmt.Errorf("worker %d: no answer to %s: %w", w.Cmd.Process.Pid, t.name, err)
		case r.Step != nil:
			alive()
			if w.Step != nil {
				w.Step(r.Step.Done, r.Step.Total)
			}
		case r.Error != "":
			return a, errors.New(r.Error)
		default:
			return a, json.Unmarshal(r.Done, &a)
		}
	}
}

// All gives all workers the same task at once, and returns their answers in the workers' order.
func (t Task[T, A]) All(ws []*Worker, with T) ([]A, error) {
	answers, errs := make([]A, len(ws)), make([]error, len(ws))
	var wg sync.WaitGroup
	for i, w := range ws {
		wg.Go(func() { answers[i], errs[i] = t.Do(w, with) })
	}
	wg.Wait()
	return answers, errors.Join(errs...)
}
