//go:build unix

package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a worker process as the test sees it.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   bytes.Buffer // to be read when the process has ended
	log   bytes.Buffer // likewise
	ended chan struct{}
	err   error // how it ended, valid then
}

// endLimit is how long a worker may take to end. It has to give its locks back, and Close may have
// to wait for calls.
const endLimit = 15 * time.Second

// scene is the workers of a test and their judge.
type scene struct {
	t       *testing.T
	judge   *judge
	base    job // the common part of the workers' jobs
	workers []*process
	names   []string // of the workers, but those that were killed
	killed  map[string]bool
	stalled time.Duration // as mine when it began
	late    time.Duration // the same
}

// newScene makes a scene without workers. It is to be made after the servers, so that the workers
// end before them.
func newScene(t *testing.T, base job) *scene {
	t.Helper()
	s := &scene{t: t, judge: newJudge(t), base: base, killed: make(map[string]bool), stalled: mine.Sum(), late: mine.Late()}
	s.base.Judge, s.base.Cold = s.judge.addr, true
	t.Cleanup(func() {
		for _, p := range s.workers {
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
		if t.Failed() {
			s.show()
		}
	})
	return s
}

// start starts a worker with one goroutine for each task.
func (s *scene) start(name string, tasks ...task) *process {
	s.t.Helper()
	j := s.base
	j.Name, j.Tasks = name, tasks
	text, err := json.Marshal(j)
	if err != nil {
		s.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	p := &process{name: name, cmd: exec.Command(self), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.log
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		s.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	s.workers, s.names = append(s.workers, p), append(s.names, name)
	return p
}

// give gives a worker another task.
func (s *scene) give(p *process, t task) {
	s.t.Helper()
	if err := json.NewEncoder(p.stdin).Encode(t); err != nil {
		s.t.Fatalf("%s: %v", p.name, err)
	}
}

// signal sends a signal to a worker, and returns when that was.
func (s *scene) signal(p *process, sig os.Signal) time.Time {
	s.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("%v to %s: %v", sig, p.name, err)
	}
	return time.Now()
}

// kill ends a worker as a crash does, and returns when that was.
func (s *scene) kill(p *process) time.Time {
	s.t.Helper()
	s.killed[p.name] = true
	at := s.signal(p, syscall.SIGKILL)
	<-p.ended
	return at
}

// end lets the workers end and returns their epilogues. Each must have ended in order: without an
// error, without a data race, with everything given back.
func (s *scene) end() map[string]epilogue {
	s.t.Helper()
	all := make(map[string]epilogue)
	var wait sync.WaitGroup
	for _, p := range s.workers {
		_ = p.stdin.Close()
		wait.Go(func() {
			select {
			case <-p.ended:
			case <-time.After(endLimit):
				_ = p.cmd.Process.Signal(syscall.SIGQUIT) // for the goroutines' stacks
				<-p.ended
			}
		})
	}
	wait.Wait()
	for _, p := range s.workers {
		if s.killed[p.name] {
			continue
		}
		var e epilogue
		if err := json.Unmarshal(p.out.Bytes(), &e); err != nil || p.err != nil {
			s.t.Errorf("worker %s ended with %v, having said %q", p.name, p.err, p.out.String())
		}
		all[p.name] = e
	}
	return all
}

// check ends the workers and fails the test if the judge has seen anything that must not be.
func (s *scene) check() map[string]epilogue {
	s.t.Helper()
	all := s.end()
	found, broken := s.judge.violations()
	for _, x := range slices.Concat(found, broken) {
		s.t.Error(x)
	}
	visits, losses := s.judge.seen(), 0
	for _, v := range visits {
		if v.State == forfeited {
			losses++
			if !v.Told {
				s.t.Errorf("%v on %s was lost, and its context ended with %s", v, v.Key, v.Cause)
			}
		}
	}
	s.t.Logf("%d locks, %d of them lost", len(visits), losses)
	return all
}

// unscathed fails the test if a worker lost a lock or its session. It also fails it if any of the
// keys was not locked once and held until the end. A machine that was stalled for long may have
// brought that about, by itself.
func (s *scene) unscathed(all map[string]epilogue, kept ...string) {
	s.t.Helper()
	longest := mine.Sum() - s.stalled
	for _, e := range all {
		longest = max(longest, e.Stalled)
	}
	if longest > 500*time.Millisecond {
		s.t.Logf("the machine was stalled for %v: losses are not counted", longest)
		return
	}
	for name, e := range all {
		if e.Sessions != 1 || len(e.Lost) > 0 {
			s.t.Errorf("worker %s has had %d sessions, and has lost locks: %v", name, e.Sessions, e.Lost)
		}
	}
	visits := s.judge.seen()
	for _, k := range kept {
		of := slices.DeleteFunc(slices.Clone(visits), func(v visit) bool { return v.Key != k })
		if len(of) != 1 || of[0].State != unlocked {
			s.t.Errorf("%s was not held all the time: %v", k, of)
		}
	}
}

// show logs the ends of the workers' logs.
func (s *scene) show() {
	const most = 8 << 10
	for _, p := range s.workers {
		log := p.log.String()
		if len(log) > most {
			log = "... " + log[len(log)-most:]
		}
		s.t.Logf("worker %s ended with %v:\n%s", p.name, p.err, strings.TrimSpace(log+p.out.String()))
	}
	found, broken := s.judge.violations()
	for _, x := range slices.Concat(found, broken) {
		s.t.Log(x)
	}
	visits := s.judge.seen()
	var b strings.Builder
	for _, v := range visits[max(0, len(visits)-50):] {
		fmt.Fprintf(&b, "%s: %v, state %d\n", v.Key, v, v.State)
	}
	s.t.Logf("last visits:\n%s", b.String())
}
