//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/lan"
)

// What a process of this program is to be, in its environment.
const (
	nodeVariable     = "HOLDFAST_CHAOS_NODE"
	resourceVariable = "HOLDFAST_CHAOS_RESOURCE"
)

// child runs what the environment says, if it says so. Then this process is not the one that commits faults.
func child() (mine bool, err error) {
	if text := os.Getenv(nodeVariable); text != "" {
		return true, runNode(text)
	}
	if socket := os.Getenv(resourceVariable); socket != "" {
		return true, serveResource(socket)
	}
	return false, nil
}

// A process is one that was started here. It dies with this one.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{}
	err   error // how it ended, valid then
}

// launch starts this program again, behind a command that becomes it.
func launch(in []string, variable, value, log string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := append(slices.Clone(in), self)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), variable+"="+value)
	return begin(cmd, log)
}

func begin(cmd *exec.Cmd, log string) (*process, error) {
	f, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

func (p *process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// running reports whether the process has not ended.
func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// end lets the process end in order, or after the limit shows where its goroutines are.
func (p *process) end(limit time.Duration) error {
	_ = p.stdin.Close()
	select {
	case <-p.ended:
	case <-time.After(limit):
		p.signal(syscall.SIGQUIT)
		<-p.ended
		return fmt.Errorf("has not ended after %v: %w", limit, p.err)
	}
	return p.err
}

// A seat is a host for a node, and the process that is there, if any.
type seat struct {
	host *lan.Host
	job  job
	dir  string

	mu   sync.Mutex // protects what follows
	p    *process   // nil: none
	life int
	down bool // it is not expected to work
}

func (s *seat) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life++
	j := s.job
	j.Life = s.life
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	s.p, err = launch(s.host.In(), nodeVariable, string(text), filepath.Join(s.dir, s.host.Name+".log"))
	s.down = false
	return err
}

// kill ends the node as a crash does.
func (s *seat) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	if s.p != nil {
		s.p.kill()
		s.p = nil
	}
}

// leave lets the node end in order.
func (s *seat) leave() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	if s.p == nil {
		return nil
	}
	p := s.p
	s.p = nil
	if err := p.end(40 * time.Second); err != nil {
		return fmt.Errorf("%s: %w", s.host.Name, err)
	}
	return nil
}

func (s *seat) signal(sig os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.p != nil {
		s.p.signal(sig)
	}
}

// failed says how the node's process has ended by itself, which it must not.
func (s *seat) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.p == nil || s.p.running() {
		return nil
	}
	if s.p.err == nil {
		s.p.err = errors.New("without an error")
	}
	return fmt.Errorf("%s has ended: %w: see %s", s.host.Name, s.p.err, filepath.Join(s.dir, s.host.Name+".log"))
}
