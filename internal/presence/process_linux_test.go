package presence

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/await"
)

const moment = 100 * time.Millisecond // in which a process that lives is not seen to end

func TestEnded_AProcessIsKilled(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]order{
		"one that rests":       {},
		"one with a child":     {Child: true},
		"one with 40 that run": {Busy: 40},
	} {
		t.Run(name, func(t *testing.T) {
			p := begin(t, o)
			lives(t, p.w, moment)
			killed := time.Now()
			p.signal(syscall.SIGKILL)
			ended(t, p.w)
			t.Logf("seen after %v", time.Since(killed).Round(10*time.Microsecond))
		})
	}
}

// A process that ends by itself is seen as well, and each watcher sees it, again and again.
func TestEnded_ForAllWatchers(t *testing.T) {
	t.Parallel()
	p := begin(t, order{})
	second := watch(t, p.w.name)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ended(t, p.w)
		ended(t, second)
	}
}

func TestEnded_AStoppedProcessLives(t *testing.T) {
	t.Parallel()
	p := begin(t, order{})
	pid := p.Cmd.Process.Pid
	for range 2 {
		p.signal(syscall.SIGSTOP)
		await.Until(t, "it is stopped", func() bool { return state(t, pid) == "T" })
		lives(t, p.w, moment)
		lives(t, watch(t, p.w.name), moment) // it need not run to be watched
		p.signal(syscall.SIGCONT)
		await.Until(t, "it goes on", func() bool { return state(t, pid) != "T" })
		lives(t, p.w, moment)
	}
	p.signal(syscall.SIGSTOP)
	await.Until(t, "it is stopped", func() bool { return state(t, pid) == "T" })
	p.signal(syscall.SIGKILL)
	ended(t, p.w)
}

// What a process was ends when it executes another program.
func TestEnded_AnotherProgram(t *testing.T) {
	t.Parallel()
	p := begin(t, order{Exec: true})
	fmt.Fprintln(p.In)
	ended(t, p.w)
	if line := p.line(); line != "other\n" {
		t.Errorf("the other program said %q", line)
	}
}

// No code runs any more when an end is proven: not a thread counts on in shared memory.
func TestEnded_NoThreadIsLeft(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "count")
	count, err := counter(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		p := begin(t, order{Busy: 8, Count: path})
		first := count.Load()
		await.Until(t, "its threads count", func() bool { return count.Load() > first })
		p.signal(syscall.SIGKILL)
		ended(t, p.w)
		seen := count.Load()
		_ = p.Stop() // it was killed
		if last := count.Load(); last != seen {
			t.Errorf("a thread has counted from %d to %d", seen, last)
		}
	}
}
