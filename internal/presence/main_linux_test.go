package presence

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/internal/leak"
	"github.com/holdfast-go/holdfast/internal/reexec"
	"github.com/holdfast-go/holdfast/internal/takes"
)

const variable = "HOLDFAST_TEST_PRESENCE"

// order is for a process that shows itself.
type order struct {
	Name  string
	Busy  int    // threads that compute
	Count string // the file in which they count
	Child bool   // has started a program that outlives it
	Exec  bool   // becomes another program when it reads a line
}

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(variable); ok {
		if err := shown(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	takes.SideBySide(4)
	leak.Main(m)
}

// shown is the main of such a process. It prints a line, and lives as long as its input.
func shown(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	if _, err := Show(o.Name); err != nil {
		return err
	}
	if o.Child {
		child := exec.Command("cat") // ends with the input
		child.Stdin = os.Stdin
		if err := child.Start(); err != nil {
			return err
		}
		fmt.Println("up")
		return child.Wait()
	}
	runtime.GOMAXPROCS(1 + max(o.Busy, runtime.NumCPU()))
	count := new(atomic.Uint64)
	if o.Count != "" {
		var err error
		if count, err = counter(o.Count); err != nil {
			return err
		}
	}
	began := make(chan struct{})
	for range o.Busy {
		go func() { // ends with the process
			runtime.LockOSThread()
			began <- struct{}{}
			for {
				count.Add(1)
			}
		}()
	}
	for range o.Busy {
		<-began
	}
	fmt.Println("up")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err == nil && o.Exec {
		return syscall.Exec("/bin/sh", []string{"sh", "-c", "echo other; exec cat"}, nil)
	}
	return nil
}

// process is one that shows itself, as this test sees it.
type process struct {
	*reexec.Worker
	out *bufio.Reader
	w   *Watcher
}

// begin starts a process and watches it. It is killed at the end of the test.
func begin(t *testing.T, o order) *process {
	t.Helper()
	o.Name = named(t)
	w, err := reexec.Start(context.Background(), variable, o, os.Stderr, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Worker: w, out: bufio.NewReader(w.Out)}
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		_ = w.Stop()
	})
	if line := p.line(); line != "up\n" {
		t.Fatalf("it said %q", line)
	}
	p.w = watch(t, o.Name)
	return p
}

func (p *process) signal(s os.Signal) { _ = p.Cmd.Process.Signal(s) } // it may have ended

func (p *process) line() string {
	line, _ := p.out.ReadString('\n')
	return line
}

// named returns a name that no other test has, nor the same one at another time.
func named(t *testing.T) string {
	return fmt.Sprintf("%s %d %d", t.Name(), os.Getpid(), time.Now().UnixNano())
}

func watch(t *testing.T, name string) *Watcher {
	t.Helper()
	w, err := Watch(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func showing(t *testing.T, name string, backlog int) *Sign {
	t.Helper()
	s, err := show(name, backlog)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// ended fails the test if there is no proof of an end.
func ended(t *testing.T, w *Watcher) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := w.Ended(ctx); err != nil {
		t.Fatal(err)
	}
}

// lives fails the test if the process is seen to end within a while.
func lives(t *testing.T, w *Watcher, while time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), while)
	defer cancel()
	if err := w.Ended(ctx); err != context.DeadlineExceeded {
		t.Fatal(err)
	}
}

// state returns the letter of a process in /proc: T is stopped.
func state(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), ") ")
	return after[:1]
}

// counter maps the first word of a file, which may be shared with another process.
func counter(path string) (*atomic.Uint64, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(8); err != nil {
		return nil, err
	}
	b, err := unix.Mmap(int(f.Fd()), 0, 8, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED) // until this process ends
	if err != nil {
		return nil, err
	}
	return (*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(b))), nil
}
