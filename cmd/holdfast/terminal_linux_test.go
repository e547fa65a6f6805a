package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// asWaiting makes this program a command that says its process group, and waits for signals.
const asWaiting = "HOLDFAST_TEST_WAITING"

// waits runs such a command in a shell with $HOLDFAST.
const waits = `"$HOLDFAST" lock k -- env ` + asWaiting + `=1 "$HOLDFAST"`

func init() {
	if os.Getenv(asStopped) != "" {
		os.Exit(runStopped())
	}
	if os.Getenv(asWaiting) != "" {
		os.Exit(waitForSignals())
	}
}

// waitForSignals prints its signals, and ends by SIGINT and SIGTERM.
func waitForSignals() int {
	got := make(chan os.Signal, 16)
	signal.Notify(got, syscall.SIGCONT, syscall.SIGINT, syscall.SIGTERM)
	fmt.Println("group", os.Getpid())
	for {
		switch <-got {
		case syscall.SIGCONT:
			fmt.Println("goes on")
		case syscall.SIGINT:
			fmt.Println("interrupted")
			return 8
		case syscall.SIGTERM:
			fmt.Println("asked")
			return 9
		}
	}
}

// terminalOf is a program on a terminal of its own: the leader of a session, as a shell is.
type terminalOf struct {
	*command
	keys   *os.File
	master int // the same
}

// onTerminal starts a program on a new terminal. $HOLDFAST runs this program as the command.
func (n *namespace) onTerminal(args ...string) *terminalOf {
	n.t.Helper()
	master, slave := openPTY(n.t)
	keys := os.NewFile(uintptr(master), "ptmx")
	x := &command{t: n.t, cmd: exec.Command(args[0], args[1:]...), in: keys, out: keys}
	x.cmd.Env = append(os.Environ(), asCommand+"=1", "HOLDFAST_URL=redis://"+n.server.Addr,
		"HOLDFAST_NAME=op", "GORACE=exitcode=66 atexit_sleep_ms=0", "HOLDFAST="+os.Args[0])
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = slave, slave, slave
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := x.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		_ = slave.Close()
		_ = keys.Close() // hangs up: SIGHUP ends the processes there
		_ = x.cmd.Process.Kill()
		_ = x.cmd.Wait()
	})
	return &terminalOf{x, keys, master}
}

// openPTY opens a terminal that neither echoes nor changes written bytes.
func openPTY(t *testing.T) (master int, slave *os.File) {
	t.Helper()
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skip("no terminal: ", err)
	}
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	modes, err := unix.IoctlGetTermios(master, unix.TCGETS)
	if err == nil {
		modes.Lflag &^= unix.ECHO
		modes.Oflag &^= unix.OPOST
		err = unix.IoctlSetTermios(master, unix.TCSETS, modes)
	}
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

func newFIFO(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// types writes a user's keys.
func (x *terminalOf) types(keys string) {
	x.t.Helper()
	if _, err := x.keys.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
}

// number waits for a line that begins with a word, and returns the number behind it.
func (x *terminalOf) number(word string) int {
	x.t.Helper()
	for {
		if rest, ok := strings.CutPrefix(x.line(), word+" "); ok {
			n, err := strconv.Atoi(rest)
			if err != nil {
				x.t.Fatal(err)
			}
			return n
		}
	}
}

// has checks which process group has the terminal now.
func (x *terminalOf) has(who string, group int) {
	x.t.Helper()
	if got := x.front(); got != group {
		x.t.Errorf("group %d has the terminal, want %s, %d", got, who, group)
	}
}

// readsAgain checks that the script has the terminal, and reads it.
func (x *terminalOf) readsAgain(who string) {
	x.t.Helper()
	x.has(who, x.cmd.Process.Pid)
	x.types("read\n")
	x.says("read")
}

// getsIt waits until a process group has the terminal.
func (x *terminalOf) getsIt(who string, group int) {
	x.t.Helper()
	await.Until(x.t, who+" has the terminal", func() bool { return x.front() == group })
}

func (x *terminalOf) front() int {
	x.t.Helper()
	group, err := unix.IoctlGetInt(x.master, unix.TIOCGPGRP)
	if err != nil {
		x.t.Fatal(err)
	}
	return group
}

// A command in front gets the terminal with its Ctrl-C. A shell without job control, as one that
// runs a script, has it again after the command.
func TestTerminal_LentAndGivenBack(t *testing.T) {
	n := newNamespace(t)
	n.open(&coord.Options{Name: "app"})
	x := n.onTerminal("sh", "-c", waits+`; echo "status $?"; read -r word; echo "$word"`)
	group := x.number("group")
	x.has("the command", group)
	x.types(ctrlC)
	x.says("interrupted")
	if got := x.number("status"); got != 8 {
		t.Errorf("status %d", got)
	}
	x.readsAgain("the script")
}

// One that cannot be run leaves the terminal where it was.
func TestTerminal_GivenBackByOneThatCannotRun(t *testing.T) {
	n := newNamespace(t)
	n.open(&coord.Options{Name: "app"})
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, []byte("\x7fELF, it says"), 0o700); err != nil {
		t.Fatal(err)
	}
	x := n.onTerminal("sh", "-c", `"$HOLDFAST" lock k -- "$0"
		echo "status $?"; read -r word; echo "$word"`, file)
	if got := x.number("status"); got != statusNotRun {
		t.Errorf("status %d", got)
	}
	x.readsAgain("the script")
}

// A command in the background takes no terminal. It is stopped when it reads that, and gets it by
// "fg".
func TestTerminal_InTheBackground(t *testing.T) {
	n := newNamespace(t)
	n.open(&coord.Options{Name: "app"})
	x := n.onTerminal("sh", "-c", `set -m
		"$HOLDFAST" lock k -- sh -c 'echo "group $$"; read -r go
			read -r word </dev/tty; echo "word $word"' &
		read -r go; fg; echo "status $?"; read -r word; echo "$word"`)
	group := x.number("group")
	x.has("the shell", x.cmd.Process.Pid)
	await.Until(t, "it is stopped", func() bool { return stateOf(t, parentOf(t, group)) == "T" })
	x.has("the shell", x.cmd.Process.Pid)
	x.types("go\n")
	x.getsIt("the command", group)
	x.types("go\n5\n")
	if got := x.number("word"); got != 5 {
		t.Errorf("it reads %d", got)
	}
	if got := x.number("status"); got != 0 {
		t.Errorf("status %d", got)
	}
	x.readsAgain("the shell")
}

// A command in the background that needs no terminal ends without having had it.
func TestTerminal_NotTakenInTheBackground(t *testing.T) {
	n := newNamespace(t)
	n.open(&coord.Options{Name: "app"})
	x := n.onTerminal("sh", "-c", "set -m; "+waits+` &
		wait $!; echo "status $?"; read -r word; echo "$word"`)
	group := x.number("group")
	x.has("the shell", x.cmd.Process.Pid)
	if err := syscall.Kill(parentOf(t, group), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	x.says("asked")
	if got := x.number("status"); got != 9 {
		t.Errorf("status %d", got)
	}
	x.readsAgain("the shell")
}

// onCtrlZ runs a command in a shell, and stops it. The shell goes on with a line of input.
func (n *namespace) onCtrlZ(then string) (x *terminalOf, group int) {
	n.t.Helper()
	x = n.onTerminal("sh", "-c", "set -m; "+waits+`; echo "status $?"; read -r go; `+then)
	group = x.number("group")
	x.has("the command", group)
	x.stop(group)
	return x, group
}

// stop stops a command in front; the shell tells of it as of its own.
func (x *terminalOf) stop(group int) {
	x.t.Helper()
	x.types(ctrlZ)
	if got, want := x.number("status"), 128+int(syscall.SIGTSTP); got != want {
		x.t.Errorf("the shell sees %d, want %d", got, want)
	}
	x.has("the shell", x.cmd.Process.Pid)
	for what, pid := range map[string]int{"the command": group, "holdfast": parentOf(x.t, group)} {
		if got := stateOf(x.t, pid); got != "T" {
			x.t.Errorf("%s is %s, not stopped", what, got)
		}
	}
}

// Ctrl-Z stops the command and holdfast, again and again, and "fg" continues both.
func TestTerminal_CtrlZ(t *testing.T) {
	n := newNamespace(t)
	n.open(&coord.Options{Name: "app"})
	x, group := n.onCtrlZ(`fg; echo "status $?"; read -r go; fg; echo "status $?"`)
	x.types("go\n")
	x.says("goes on")
	x.has("the command", group)
	x.stop(group)
	x.types("go\n")
	x.says("goes on")
	x.has("the command", group)
	x.types(ctrlC)
	x.says("interrupted")
	if got := x.number("status"); got != 8 {
		t.Errorf("status %d", got)
	}
}

// After Ctrl-Z "bg" continues the command, which gets the terminal when "fg" puts it in front.
func TestTerminal_ContinuedInTheBackground(t *testing.T) {
	n := newNamespace(t)
	n.open(&coord.Options{Name: "app"})
	x, group := n.onCtrlZ(`bg; read -r go; fg; echo "status $?"
		read -r go; kill %1; fg; echo "status $?"`)
	x.types("go\n")
	x.says("goes on")
	x.has("the shell", x.cmd.Process.Pid)
	x.types("go\n")
	x.getsIt("the command", group)
	x.stop(group)
	x.types("go\n")
	x.says("asked")
	if got := x.number("status"); got != 9 {
		t.Errorf("status %d", got)
	}
}

// While it is stopped another process gets the lock. Then the command ends as by any lost lock.
func TestTerminal_CtrlZLosesTheLock(t *testing.T) {
	n := newNamespace(t)
	n.open(&coord.Options{Name: "app"})
	x, _ := n.onCtrlZ(`fg; echo "status $?"`)
	n.start("lock", "--wait", await.Limit.String(), "k", "--", "true").want(0)
	x.types("go\n")
	x.says("asked")
	if got := x.number("status"); got != statusLost {
		t.Errorf("status %d", got)
	}
}

// A stopped command is continued only while its lock is in force.
func TestProcess_ContinuedWithItsLock(t *testing.T) {
	p, err := startProcess([]string{"sleep", "100"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.release()
	until := func(want news) {
		await.Until(t, fmt.Sprint("news ", want), func() bool { got, _ := p.look(); return got == want })
	}
	p.signal(syscall.SIGSTOP)
	until(stopped)
	over, end := context.WithCancel(t.Context())
	end()
	p.resume(over)
	if got := stateOf(t, p.pid); got != "T" {
		t.Errorf("without its lock it is %s", got)
	}
	p.resume(t.Context())
	await.Until(t, "it goes on", func() bool { return stateOf(t, p.pid) != "T" })
	p.signal(syscall.SIGKILL)
	until(ended)
}

// Ctrl-Z while it waits for the lock stops holdfast. It goes on to wait.
func TestTerminal_CtrlZWhileItWaits(t *testing.T) {
	n := newNamespace(t)
	app := n.open(&coord.Options{Name: "app"})
	l, err := app.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	x := n.onTerminal("sh", "-c", `set -m; "$HOLDFAST" lock k -- echo runs; echo "status $?"
		fg; echo "status $?"`)
	await.Until(t, "it waits", func() bool {
		info, err := app.Inspect(t.Context(), "k")
		return err == nil && len(info.Waiters) > 0
	})
	x.types(ctrlZ)
	if got, want := x.number("status"), 128+int(syscall.SIGTSTP); got != want {
		t.Errorf("the shell sees %d, want %d", got, want)
	}
	if err := l.Unlock(); err != nil {
		t.Fatal(err)
	}
	x.says("runs")
	if got := x.number("status"); got != 0 {
		t.Errorf("status %d", got)
	}
}

// asStopped makes this program one that gets a lock, and Ctrl-Z in the same moment.
const asStopped = "HOLDFAST_TEST_STOPPED"

// runStopped runs a command as if Ctrl-Z had come before, which heed has seen or not.
func runStopped() int {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	x := &execution{terminal: openTerminal(), waits: ctx}
	defer x.notify()()
	x.heed()
	x.signals <- syscall.SIGTSTP
	if _, err := x.run(until{ctx}, nil, []string{"echo", "runs"}); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// Ctrl-Z that comes as the lock does stops holdfast before the command runs.
func TestTerminal_CtrlZAsTheLockComes(t *testing.T) {
	n := &namespace{t: t, server: &redistest.Server{}}
	x := n.onTerminal("sh", "-c", `set -m; `+asStopped+`=1 "$HOLDFAST"; echo "status $?"; read -r go
		fg; echo "status $?"`)
	if got, want := x.line(), fmt.Sprint("status ", 128+int(syscall.SIGTSTP)); got != want {
		t.Fatalf("the shell says %q, want %q", got, want)
	}
	x.types("go\n")
	x.says("runs")
	if got := x.number("status"); got != 0 {
		t.Errorf("status %d", got)
	}
}

// Where no shell would continue it, Ctrl-Z does not stop holdfast, and so not the command.
func TestTerminal_CtrlZWithoutAShell(t *testing.T) {
	n := newNamespace(t)
	n.open(&coord.Options{Name: "app"})
	x := n.onTerminal("sh", "-c", "exec "+waits)
	group := x.number("group")
	for range 2 {
		x.types(ctrlZ)
		x.says("goes on")
		x.getsIt("the command", group)
	}
	x.types(ctrlC)
	x.says("interrupted")
	if err := x.cmd.Wait(); x.cmd.ProcessState.ExitCode() != 8 {
		t.Error(err)
	}
}

// A command in a pipeline leaves the terminal to the others, such as a pager, and is stopped with
// them. It gets the terminal when it asks.
func TestTerminal_InAPipeline(t *testing.T) {
	n := newNamespace(t)
	n.open(&coord.Options{Name: "app"})
	fifo := newFIFO(t)
	x := n.onTerminal("sh", "-c", `set -m
		"$HOLDFAST" lock k -- sh -c 'echo "group $$"; read -r go <"$0"
			read -r word; echo "word $word"' "$0" | cat
		echo "status $?"; read -r go; fg; echo "status $?"`, fifo)
	group := x.number("group")
	x.has("the pipeline", parentOf(t, group))
	x.stop(group)
	x.types("go\n")
	x.getsIt("the pipeline", parentOf(t, group))
	if err := os.WriteFile(fifo, []byte("go\n"), 0); err != nil { // waits for the reader
		t.Fatal(err)
	}
	x.getsIt("the command", group)
	x.types("5\n")
	if got := x.number("word"); got != 5 {
		t.Errorf("it reads %d", got)
	}
	if got := x.number("status"); got != 0 {
		t.Errorf("status %d", got)
	}
}

// stateOf returns the state of a process: T if it is stopped.
func stateOf(t *testing.T, pid int) string { return fieldsOf(t, pid)[0] }

func parentOf(t *testing.T, pid int) int {
	t.Helper()
	parent, err := strconv.Atoi(fieldsOf(t, pid)[1])
	if err != nil {
		t.Fatal(err)
	}
	return parent
}

// fieldsOf returns the fields of a process's stat behind its name.
func fieldsOf(t *testing.T, pid int) []string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return strings.Fields(rest)
}
