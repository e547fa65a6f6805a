package singleflight_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/virtual"
	"github.com/holdfast-go/holdfast/singleflight"
)

// outcome is how a call ended in a goroutine of its own.
type outcome struct {
	returned bool
	panicked any // neither returned nor panicked: Goexit
}

func (o outcome) String() string {
	switch {
	case o.returned:
		return "returned"
	case o.panicked != nil:
		return "panicked"
	}
	return "exited"
}

func outcomeOf(call func()) outcome {
	var o outcome
	var wg sync.WaitGroup
	wg.Add(1)
	go func() { // not wg.Go, which passes panics on
		defer wg.Done()
		defer func() { o.panicked = recover() }()
		call()
		o.returned = true
	}()
	wg.Wait()
	return o
}

var errPanic = errors.New("an error to panic with")

func boom() { panic("boom") }

func TestPanicAndGoexitPassThrough(t *testing.T) {
	is := func(want any) func(*testing.T, *singleflight.PanicError) {
		return func(t *testing.T, e *singleflight.PanicError) {
			if e.Value != want {
				t.Errorf("Value = %v, want %v", e.Value, want)
			}
			if err, _ := want.(error); e.Unwrap() != err {
				t.Errorf("Unwrap = %v, want %v", e.Unwrap(), err)
			}
		}
	}
	for _, tt := range []struct {
		name    string
		godebug string
		fn      func()
		want    string
		check   func(*testing.T, *singleflight.PanicError) // if it panicked
	}{
		{name: "string", fn: boom, want: "panicked", check: func(t *testing.T, e *singleflight.PanicError) {
			is("boom")(t, e)
			if !strings.Contains(string(e.Stack), "singleflight_test.boom") {
				t.Errorf("the stack does not lead to the panic:\n%s", e.Stack)
			}
			if s := e.Error(); !strings.Contains(s, "boom") || !strings.Contains(s, string(e.Stack)) {
				t.Errorf("Error() tells too little: %s", s)
			}
		}},
		{name: "error", fn: func() { panic(errPanic) }, want: "panicked", check: is(errPanic)},
		{name: "runtime error", fn: func() { var s []int; s[0] = 0 }, want: "panicked", check: func(t *testing.T, e *singleflight.PanicError) {
			if _, ok := errors.AsType[runtime.Error](e); !ok {
				t.Errorf("%#v is no runtime.Error", e.Value)
			}
		}},
		{name: "nil", fn: func() { panic(nil) }, want: "panicked", check: func(t *testing.T, e *singleflight.PanicError) {
			if _, ok := errors.AsType[*runtime.PanicNilError](e); !ok {
				t.Errorf("%#v is no *runtime.PanicNilError", e.Value)
			}
		}},
		{name: "nil as of old", godebug: "panicnil=1", fn: func() { panic(nil) }, want: "panicked", check: is(nil)},
		{name: "panic during Goexit", fn: func() { defer boom(); runtime.Goexit() }, want: "panicked", check: is("boom")},
		{name: "Goexit", fn: runtime.Goexit, want: "exited"},
		{name: "Goexit during panic", fn: func() { defer runtime.Goexit(); boom() }, want: "exited"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.godebug != "" {
				t.Setenv("GODEBUG", tt.godebug)
			}
			virtual.Test(t, func(t *testing.T) {
				var g group
				fn := func(context.Context) (int, error) {
					time.Sleep(time.Second)
					tt.fn()
					return 0, nil
				}
				check := func(o outcome) {
					if o.String() != tt.want {
						t.Errorf("%v, want %s", o, tt.want)
					}
					if o.panicked == nil {
						return
					}
					e, ok := o.panicked.(*singleflight.PanicError)
					if !ok {
						t.Errorf("panic value is a %T", o.panicked)
						return
					}
					tt.check(t, e)
				}
				var wg sync.WaitGroup
				for range 3 { // every member gets it
					wg.Go(func() { check(outcomeOf(func() { g.Do(t.Context(), "k", fn) })) })
				}
				m := g.Join(t.Context(), "k", fn)
				<-m.Done()
				wantLen(t, &g, 0)
				check(outcomeOf(func() { m.Result() }))
				wg.Wait()
			})
		})
	}
}

func TestPanicOfAbandonedFlightIsDropped(t *testing.T) {
	var g group
	m := g.Join(t.Context(), "k", func(ctx context.Context) (int, error) {
		<-ctx.Done()
		panic(context.Cause(ctx))
	})
	m.Leave()
	<-m.Done() // the process lives; a member that asks in spite of having left still learns of it
	o := outcomeOf(func() { m.Result() })
	if err, _ := o.panicked.(error); !errors.Is(err, singleflight.ErrAbandoned) {
		t.Errorf("panicked with %v, want ErrAbandoned", o.panicked)
	}
}
