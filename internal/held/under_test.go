package held_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/held"
)

// late is a context that tells of its end before its channel is closed, as one may that package
// context is about to end.
type late struct {
	context.Context
	err error
}

func (x late) Err() error                { return x.err }
func (late) Done() <-chan struct{}       { return make(chan struct{}) }
func (late) Deadline() (time.Time, bool) { return time.Time{}, false }
func (x late) Value(key any) any         { return x.Context.Value(key) }

// Err says how the outer context has ended, also in the moment before that has ended the derived
// contexts.
func TestUnder_SaysHowTheOuterContextHasEnded(t *testing.T) {
	for _, want := range []error{context.Canceled, context.DeadlineExceeded} {
		ctx, end := held.Under(late{context.Background(), want}, context.Background())
		if err := ctx.Err(); err != want {
			t.Errorf("got %v, want %v", err, want)
		}
		end(nil)
	}
}

// The context of a function that runs with a lock is the caller's, but for its locks, and ends with
// the lock as well.
func TestInside(t *testing.T) {
	type key struct{}
	until := time.Now().Add(time.Hour)
	caller, stop := context.WithDeadline(context.WithValue(context.Background(), key{}, "the caller's"), until)
	defer stop()
	caller = context.WithValue(caller, held.Key{}, "outer")
	lock, lose := context.WithCancelCause(context.WithValue(context.WithValue(context.Background(), held.Key{}, "inner"), key{}, "the lock's"))
	ctx, end := held.Inside(caller, lock)
	defer end(nil)
	if d, _ := ctx.Deadline(); !d.Equal(until) || ctx.Value(held.Key{}) != "inner" || ctx.Value(key{}) != "the caller's" {
		t.Error(d, ctx.Value(held.Key{}), ctx.Value(key{}))
	}
	lost := errors.New("lost")
	lose(lost)
	if ctx.Err() != context.Canceled || context.Cause(ctx) != lost {
		t.Error(ctx.Err(), context.Cause(ctx))
	}
	<-ctx.Done()
}

// Apart leaves out the locks and the task of the context, and nothing else.
func TestApart(t *testing.T) {
	type key struct{}
	outer, stop := context.WithCancel(context.WithValue(context.Background(), key{}, "the caller's"))
	ctx := held.Apart(context.WithValue(context.WithValue(outer, held.Key{}, "a lock"), held.Task{}, "a task"))
	if ctx.Value(key{}) != "the caller's" || ctx.Value(held.Key{}) != nil || ctx.Value(held.Task{}) != nil {
		t.Error("what it tells of")
	}
	if stop(); ctx.Err() == nil {
		t.Error("it has no end")
	}
}
