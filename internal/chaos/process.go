//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/lan"
	"github.com/holdfast-go/holdfast/internal/reexec"
)

// The variables that give a process of this program its role.
const (
	nodeVariable     = "HOLDFAST_CHAOS_NODE"
	resourceVariable = "HOLDFAST_CHAOS_RESOURCE"
)

// child plays the role in the environment, if there is one. Then this process is not the one that
// commits faults.
func child() (mine bool, err error) {
	if text := os.Getenv(nodeVariable); text != "" {
		return true, runNode(text)
	}
	if socket := os.Getenv(resourceVariable); socket != "" {
		return true, serveResource(socket)
	}
	return false, nil
}

// A seat is a host for a node, and the process that is there, if any.
type seat struct {
	host *lan.Host
	job  job
	dir  string

	mu   sync.Mutex      // protects the fields below
	p    *reexec.Process // nil: none
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
	s.p, err = reexec.Again(filepath.Join(s.dir, s.host.Name+".log"), s.host.In(), nodeVariable, string(text))
	s.down = false
	return err
}

// kill ends the node as a crash does.
func (s *seat) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	if s.p != nil {
		s.p.Kill()
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
	if err := p.End(40 * time.Second); err != nil {
		return fmt.Errorf("%s: %w", s.host.Name, err)
	}
	return nil
}

func (s *seat) signal(sig os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.p != nil {
		s.p.Signal(sig)
	}
}

// failed says how the node's process has ended by itself, which it must not.
func (s *seat) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.p == nil {
		return nil
	}
	ended, err := s.p.Ended()
	if !ended {
		return nil
	}
	if err == nil {
		err = errors.New("without an error")
	}
	return fmt.Errorf("%s has ended: %w: see %s", s.host.Name, err, filepath.Join(s.dir, s.host.Name+".log"))
}
