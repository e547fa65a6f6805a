package presence

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/netns"
)

func TestSign(t *testing.T) {
	t.Parallel()
	name := named(t)
	if w, err := Watch(name); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatal(w, err)
	}
	s := showing(t, name, most)
	if _, err := Show(name); !errors.Is(err, syscall.EADDRINUSE) {
		t.Error(err)
	}
	w := watch(t, name)
	lives(t, w, moment)
	s.Close()
	ended(t, w)
	s.Close()
	s.Tidy()
	if w, err := Watch(name); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(w, err)
	}
	showing(t, name, most) // a stranger takes the name
	if err := w.Ended(t.Context()); !errors.Is(err, errLives) {
		t.Error(err)
	}
}

// The sign stays up, without a reference to it, and when one of its descriptors is closed.
func TestSign_Stays(t *testing.T) {
	t.Parallel()
	name := named(t)
	fds := showingUnheld(t, name)
	w := watch(t, name)
	runtime.GC()
	runtime.GC()
	lives(t, w, moment)
	for i, fd := range fds {
		if i == 1 {
			lives(t, w, moment)
		}
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
	}
	ended(t, w)
}

func showingUnheld(t *testing.T, name string) []int {
	t.Helper()
	s, err := Show(name)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.fds) != 2 || s.fds[1] < high {
		t.Errorf("descriptors %v", s.fds)
	}
	return s.fds
}

// A sign with a full backlog cannot be watched, and a watcher with a broken connection learns
// nothing from it.
func TestSign_FullBacklog(t *testing.T) {
	t.Parallel()
	name := named(t)
	s := showing(t, name, 1)
	w := watch(t, name)
	line, _, err := unix.Accept(s.fds[0])
	if err != nil {
		t.Fatal(err)
	}
	fill(t, name)
	if err := unix.Close(line); err != nil {
		t.Fatal(err)
	}
	if err := w.Ended(t.Context()); !errors.Is(err, syscall.EAGAIN) {
		t.Error(err)
	}
	s.Tidy()
	if err := w.Ended(t.Context()); !errors.Is(err, errLives) {
		t.Error(err)
	}
	w = watch(t, name)
	lives(t, w, moment)
	fill(t, name)
	s.Close()
	ended(t, w)
}

// Tidy lets go of the oldest connections, those of watchers that are gone.
func TestSign_Tidy(t *testing.T) {
	t.Parallel()
	name := named(t)
	s := showing(t, name, most)
	for range some {
		watch(t, name).Close()
	}
	w := watch(t, name)
	s.Tidy()
	lives(t, w, moment)
	s.Tidy()
	if err := w.Ended(t.Context()); !errors.Is(err, errLives) {
		t.Error(err)
	}
	w = watch(t, name)
	s.Close()
	ended(t, w)
}

// fill makes the backlog full with watchers that are gone.
func fill(t *testing.T, name string) {
	t.Helper()
	for range 100 {
		w, err := Watch(name)
		if errors.Is(err, syscall.EAGAIN) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		w.Close()
	}
	t.Fatal("it does not fill")
}

// A stranger has the name, and talks: a process that shows itself does not.
func TestEnded_AStranger(t *testing.T) {
	t.Parallel()
	name := named(t)
	s := showing(t, name, most)
	w := watch(t, name)
	line, _, err := unix.Accept(s.fds[0])
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(line)
	if _, err := unix.Write(line, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := w.Ended(t.Context()); !errors.Is(err, errSaid) {
		t.Error(err)
	}
}

func TestEnded_TheWaitEnds(t *testing.T) {
	t.Parallel()
	name := named(t)
	s := showing(t, name, most)
	w := watch(t, name)
	cause := errors.New("cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	var calls sync.WaitGroup
	for range 2 { // the second one waits for the first one
		calls.Go(func() {
			if err := w.Ended(ctx); err != cause {
				t.Error(err)
			}
		})
	}
	await.Until(t, "one reads", func() bool { return len(w.turn) == 1 })
	cancel(cause)
	calls.Wait()
	if err := w.Ended(ctx); err != cause {
		t.Error(err)
	}
	lives(t, w, moment)
	calls.Go(func() {
		if err := w.Ended(t.Context()); !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	await.Until(t, "it reads", func() bool { return len(w.turn) == 1 })
	w.Close()
	calls.Wait()
	w.Close()
	s.Close()
	if err := w.Ended(t.Context()); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

func TestPlace(t *testing.T) {
	t.Parallel()
	here := Place()
	if len(here) != 16 || here != Place() {
		t.Fatalf("%q", here)
	}
	if err := netns.Needs(); err != nil {
		t.Skip(err)
	}
	n, err := netns.New("presence")
	t.Cleanup(func() {
		if err := n.Remove(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	h, err := n.Host("there")
	if err != nil {
		t.Fatal(err)
	}
	name := named(t)
	var s *Sign
	var w *Watcher
	err = h.Within(func() (err error) {
		if there := Place(); len(there) != 16 || there == here {
			t.Errorf("%q here, %q there", here, there)
		}
		if s, err = Show(name); err != nil {
			return err
		}
		w, err = Watch(name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer w.Close()
	if w, err := Watch(name); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(w, err)
	}
	// The watcher asks there, though no process has the name here.
	s.Tidy()
	if err := w.Ended(t.Context()); !errors.Is(err, errLives) {
		t.Error(err)
	}
}

// Nothing is left of signs and watchers.
func TestDescriptors(t *testing.T) {
	watch(t, showName(t)).Close() // the runtime opens some for its first one
	before := descriptors(t)
	for range 20 {
		name := named(t)
		s := showing(t, name, most)
		w := watch(t, name)
		if _, err := Watch(name + " not"); err == nil {
			t.Error("no error")
		}
		if _, err := Show(name); err == nil {
			t.Error("no error")
		}
		s.Tidy()
		s.Close()
		w.Close()
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, then %d", before, after)
	}
}

func showName(t *testing.T) string {
	name := named(t)
	showing(t, name, most)
	return name
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
