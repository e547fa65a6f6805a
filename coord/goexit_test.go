package coord_test

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// exit ends the goroutine that calls it, once after it has been set, as t.FailNow does.
type exit struct{ atomic.Bool }

func (x *exit) call() {
	if x.CompareAndSwap(true, false) {
		runtime.Goexit()
	}
}

// granted returns options with the call as Trace.Granted.
func (x *exit) granted() *coord.Options {
	return &coord.Options{Trace: &coord.Trace{Granted: func(context.Context, coord.GrantInfo) { x.call() }}}
}

// A key whose goroutine was ended is not locked, and TryLockAll says so; LockAll asks for it once
// more.
func TestGoexit_LockAll(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		var x exit
		c := start(t, a, x.granted())
		for name, try := range map[string]func() error{
			"TryLockAll":    func() error { _, err := c.TryLockAll(t.Context(), "a", "b"); return err },
			"TryLockClaims": func() error { _, err := c.TryLockClaims(t.Context(), coord.ForReading("a", "b")...); return err },
		} {
			x.Store(true)
			err := try()
			if wait := new(coord.WaitError); !errors.As(err, &wait) || wait.Key == "" || !errors.Is(err, coord.ErrUnavailable) {
				t.Errorf("%s: %v", name, err)
			}
			for _, key := range []string{"a", "b"} {
				unlock(t, lock(t, c, key))
			}
		}
		x.Store(true)
		locks, err := c.LockAll(t.Context(), "a", "b")
		if err != nil || locks.Of("a").Context().Err() != nil || locks.Of("b").Context().Err() != nil {
			t.Fatal(locks, err)
		}
		if err := locks.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// Readers whose lock had come when the goroutine was ended that asked for it are told, and the key
// can be read again.
func TestGoexit_RLock(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		var x exit
		c := start(t, a, x.granted())
		x.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.RLock(ctx, "k")
		if wait := new(coord.WaitError); !errors.As(err, &wait) || wait.Key != "k" || wait.Ended != nil || !errors.Is(err, coord.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		l, err := c.RLock(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(); err != nil {
			t.Error(err)
		}
		unlock(t, lock(t, c, "k"))
	})
}

// A caller that waits for a larger block asks for itself when that was had in vain.
func TestGoexit_LargerBlock(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		var x exit
		c := start(t, a, x.granted())
		s := c.Semaphore("k", 100)
		for range 2 { // later a larger one is asked for again
			one := acquire(t, s, 1)
			x.Store(true)
			more := acquire(t, s, 50)
			if x.Load() {
				t.Error("no block was asked for")
			}
			release(t, one, more)
			time.Sleep(5 * time.Second) // the blocks are given back, and no caller wants them any more
		}
		if n := coord.Keys(c); n > 0 {
			t.Errorf("%d keys are left", n)
		}
	})
}

// A block is made smaller for others some time later, if that was in vain.
func TestGoexit_SmallerBlock(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		var x exit
		one, two := start(t, a, x.granted()), start(t, a, nil)
		p := partly(t, one.Semaphore("k", 10), 10)
		x.Store(true)
		release(t, acquire(t, two.Semaphore("k", 10), 5))
		if x.Load() {
			t.Error("no smaller block was asked for")
		}
		release(t, p)
	})
}

// A caller that is ended while it acquires permits uses the semaphore no more: it can be one of
// another number.
func TestGoexit_Acquire(t *testing.T) {
	bubble(t, func(t *testing.T, a *fallback.Memory) {
		var x exit
		c := start(t, a, x.granted())
		x.Store(true)
		go func() { _, _ = c.Semaphore("k", 10).Acquire(t.Context(), 1) }()
		synctest.Wait()
		if x.Load() {
			t.Fatal("no block was asked for")
		}
		release(t, acquire(t, c.Semaphore("k", 20), 1))
	})
}

// A Close that a function of the caller's breaks off lets further calls of Close return, and the
// session is renewed no more.
func TestGoexit_Close(t *testing.T) {
	for name, breaks := range map[string]func(){"Goexit": runtime.Goexit, "panic": func() { panic("broken") }} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, a *fallback.Memory) {
				o := &coord.Options{SessionTTL: 5 * time.Second, Trace: &coord.Trace{Lost: func(coord.LossError) { breaks() }}}
				c, err := coord.New(context.Background(), a, withFew(o))
				if err != nil {
					t.Fatal(err)
				}
				lock(t, c, "k")
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				go func() {
					defer func() { _ = recover() }()
					_ = c.Close(ctx)
				}()
				time.Sleep(2 * time.Second)
				if err := c.Close(ctx); err == nil || !strings.Contains(err.Error(), "Options.Trace") {
					t.Errorf("got %v", err)
				}
				other := start(t, a, nil)
				l, err := other.Lock(t.Context(), "k") // when the session is over
				if err != nil {
					t.Fatal(err)
				}
				unlock(t, l)
			})
		})
	}
}

// attachments is an arbiter that counts the namespaces that are not closed.
type attachments struct {
	*fallback.Memory
	open atomic.Int32
}

type attachment struct {
	fallback.Namespace
	fallback.ResultStore
	a *attachments
}

func (a *attachments) Attach(ctx context.Context, s fallback.Settings) (fallback.Namespace, error) {
	n, err := a.Memory.Attach(ctx, s)
	if err != nil {
		return nil, err
	}
	a.open.Add(1)
	return attachment{n, n.(fallback.ResultStore), a}, nil
}

func (n attachment) Close() error {
	n.a.open.Add(-1)
	return n.Namespace.Close()
}

// A Close of an observer that is broken off closes all that it has attached to: another one for
// each Grace.
func TestGoexit_CloseOfAnObserver(t *testing.T) {
	bubble(t, func(t *testing.T, m *fallback.Memory) {
		var x exit
		a := &attachments{Memory: m}
		start(t, m, &coord.Options{Name: "anna"})
		op, err := coord.New(t.Context(), a, withFew(&coord.Options{Name: "op", Observe: true, Trace: &coord.Trace{Call: func(coord.CallInfo) { x.call() }}}))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			start(t, m, &coord.Options{SessionTTL: time.Duration(i+2) * 10 * time.Second})
			if _, err := op.Inspect(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		if n := a.open.Load(); n != 3 {
			t.Errorf("%d namespaces are in use", n)
		}
		x.Store(true)
		go func() { _ = op.Close(t.Context()) }()
		synctest.Wait()
		if err := op.Close(t.Context()); x.Load() || err == nil || !strings.Contains(err.Error(), "Options.Trace") {
			t.Errorf("got %v", err)
		}
		if n := a.open.Load(); n != 0 {
			t.Errorf("%d namespaces are not closed", n)
		}
	})
}

// Partitions whose calls were ended are acquired, and given away, some time later.
func TestGoexit_Partitions(t *testing.T) {
	takes.Seconds(t)
	var x exit
	o := quick()
	o.Trace = &coord.Trace{Call: func(i coord.CallInfo) {
		if i.Op == coord.OpOwnership {
			x.call()
		}
	}}
	a := fallback.NewMemory()
	x.Store(true)
	one := join(t, a, o)
	settled(t, 61, one)
	if x.Swap(true) {
		t.Error("no partition was acquired")
	}
	settled(t, 61, one, join(t, a, quick()))
	if x.Load() {
		t.Error("no partition was given away")
	}
}

// A look at a partition's record that was ended is over: the partition can be acquired.
func TestGoexit_Looks(t *testing.T) {
	takes.Seconds(t)
	var x exit
	o := quick()
	o.Trace = &coord.Trace{Call: func(i coord.CallInfo) {
		if i.Op == coord.OpVerify && strings.Contains(string(debug.Stack()), "partition).look(") {
			x.call()
		}
	}}
	a := fallback.NewMemory()
	one, two := join(t, a, quick()), join(t, a, o)
	settled(t, 61, one, two)
	x.Store(true)
	coord.LookAtRecords(two)
	await.Until(t, "a look is ended", func() bool { return !x.Load() })
	await.Until(t, "all looks are over", func() bool { return coord.Looking(two) == 0 })
}
