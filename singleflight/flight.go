package singleflight

import (
	"context"
	"fmt"
	"runtime/debug"
)

// A flight is one execution of one fn. It is in its group from its first member's
// arrival until fn has ended or its last member has left.
type flight[K comparable, V any] struct {
	g   *Group[K, V]
	key K
	ctx flightContext // fn's

	members int  // that have not left; protected by g.mu
	shared  bool // ever more than one member; protected by g.mu

	done     chan struct{} // closed when fn has ended; the fields below are written before
	ending   ending
	v        V           // if returned
	err      error       // if returned
	panicked *PanicError // if panicked
}

// ending is the way in which fn ended.
type ending uint8

const (
	exited ending = iota // by Goexit: the zero value, as fn's caller gets no chance to note it
	returned
	panicked
)

func (f *flight[K, V]) run(fn func(context.Context) (V, error)) {
	defer f.land()
	f.call(fn)
	if f.ending == exited {
		// Reached in spite of it, so there was a panic, with a nil that recover does not
		// tell from none (GODEBUG=panicnil=1). Its stack is gone.
		f.ending, f.panicked = panicked, &PanicError{}
	}
}

func (f *flight[K, V]) call(fn func(context.Context) (V, error)) {
	defer func() {
		if v := recover(); v != nil {
			f.ending, f.panicked = panicked, &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	f.v, f.err = fn(&f.ctx)
	f.ending = returned
}

// land makes fn's end known. The order matters. The context ends before a successor can start. The
// flight is out of the group before its members hear of the end: a caller that asks again at once
// gets a new execution, not this result.
func (f *flight[K, V]) land() {
	f.ctx.cancel(nil)
	f.g.mu.Lock()
	f.g.remove(f)
	f.g.mu.Unlock()
	close(f.done)
}

// PanicError is the value of a member's panic when fn panicked.
type PanicError struct {
	Value any    // the value of fn's panic
	Stack []byte // of fn's goroutine at the panic, as from debug.Stack
}

// Error returns the value and the stack: the stack trace of the re-raised panic would
// otherwise not tell where it came from.
func (e *PanicError) Error() string {
	return fmt.Sprintf("singleflight: fn panicked: %v\n\n%s", e.Value, e.Stack)
}

// Unwrap returns Value if it is an error, such as a runtime.Error, and nil otherwise.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
