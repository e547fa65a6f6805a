//go:build unix

// Package storetest injures the servers of stores in tests of arbiters, and judges the results.
package storetest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A Process is one of a server. It ends with this process, however that does.
type Process struct {
	Log string // the file with its output

	t     testing.TB
	dir   string
	env   []string
	args  []string
	stdin io.WriteCloser // nil: it does not run
	ended chan struct{}
	pid   int
}

// Start starts a program in a directory, with more in its environment. The end of the test kills
// it.
func Start(t testing.TB, dir string, env []string, args ...string) *Process {
	t.Helper()
	p := &Process{Log: filepath.Join(dir, "log"), t: t, dir: dir, env: env, args: args}
	p.Begin()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			text, _ := os.ReadFile(p.Log)
			t.Logf("%s: the end of its log:\n%s", p.args[0], text[max(0, len(text)-2000):])
		}
	})
	return p
}

// Begin starts it again, after Kill.
func (p *Process) Begin() {
	p.t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", `"$0" "$@" >>log 2>&1 </dev/null &
echo $!
read -r _
kill -KILL $! 2>/dev/null
wait`}, p.args...)...)
	cmd.Dir, cmd.Env = p.dir, append(append(os.Environ(), "TMPDIR="+p.dir), p.env...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan struct{})
	p.stdin, p.ended = stdin, ended
	line, err := bufio.NewReader(stdout).ReadString('\n')
	go func() { _ = cmd.Wait(); close(ended) }()
	if err == nil {
		p.pid, err = strconv.Atoi(strings.TrimSpace(line))
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// Kill is kill -9. It does nothing if the process does not run.
func (p *Process) Kill() {
	if p.stdin != nil {
		_ = p.stdin.Close()
		<-p.ended
		p.stdin = nil
	}
}

// Stop makes the process stand still, and the function that it returns makes it go on.
func (p *Process) Stop() (goOn func()) {
	p.t.Helper()
	if err := syscall.Kill(p.pid, syscall.SIGSTOP); err != nil {
		p.t.Fatal(err)
	}
	return func() { _ = syscall.Kill(p.pid, syscall.SIGCONT) }
}
