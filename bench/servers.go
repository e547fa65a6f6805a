package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/dbserver"
)

// serverKind is a kind of server that rivals need, other than Redis.
type serverKind struct {
	name   string
	debian string // the package that it comes in
	user   string // the user that runs it where root must not; empty: the one that runs this
	find   func() (program string, ok bool)
	// command prepares the server's directory and sets conn.
	command func(ctx context.Context, s *server) (*exec.Cmd, error)
	// version asks the server, at conn. It may fail until the server is ready.
	version func(ctx context.Context, conn string) (string, error)
	end     syscall.Signal // ends it at once, with what it has started: its data is worth nothing
}

// server is a server of this run.
type server struct {
	kind    *serverKind
	program string
	conn    string // how to connect
	name    string // with its version
	port    string // that was free a moment ago
	dir     string // for its files; removed with it
	attr    *syscall.SysProcAttr
	cmd     *exec.Cmd
	done    chan struct{} // closed when cmd has ended
}

// errNoServer says that a kind of server is not installed.
var errNoServer = errors.New("not installed")

const serverStart = 30 * time.Second // what a server may take until it answers

// startServer starts a server with its defaults, but for its port and the number of connections, and waits until it
// answers. It ends with this process at the latest.
func startServer(ctx context.Context, kind *serverKind) (s *server, err error) {
	program, ok := kind.find()
	if !ok {
		return nil, fmt.Errorf("%s: %w; Debian has it in %s", kind.name, errNoServer, kind.debian)
	}
	for range 3 { // another process may take the port meanwhile
		s = &server{kind: kind, program: program, done: make(chan struct{})}
		if err = s.start(ctx); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind.name, err)
	}
	return s, nil
}

func (s *server) start(ctx context.Context) (err error) {
	if s.dir, err = os.MkdirTemp("", "holdfast-bench-server-"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.attr, err = dbserver.As(s.kind.user, s.dir); err != nil {
		return err
	}
	if s.port, err = freePort(); err != nil {
		return err
	}
	cmd, err := s.kind.command(ctx, s)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Dir, cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = s.dir, endsWithUs(s.attr, s.kind.end), log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd = cmd
	go func() {
		defer close(s.done)
		_ = cmd.Wait() // it says that it was told to
	}()
	if err := s.ready(ctx); err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("it did not start: %w\n%s", err, text[max(0, len(text)-2000):])
	}
	return nil
}

// ready waits until the server answers.
func (s *server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, serverStart)
	defer cancel()
	go func() {
		select {
		case <-s.done: // a question that is under way would wait for nothing
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		name, err := s.kind.version(ctx, s.conn)
		if err == nil {
			s.name = name
			return nil
		}
		select {
		case <-s.done:
			return errors.New("it ended at once")
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// prepare runs a program that sets the directory up.
func (s *server) prepare(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.SysProcAttr = s.dir, endsWithUs(s.attr, syscall.SIGKILL)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(program), err, bytes.TrimSpace(out))
	}
	return nil
}

// stop ends the server and waits for it.
func (s *server) stop() error {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(s.kind.end) // it may have ended
		<-s.done
	}
	return os.RemoveAll(s.dir)
}

// pids lists the processes of the server: those that it has started may do the work.
func (s *server) pids() []int { return append(children(s.cmd.Process.Pid), s.cmd.Process.Pid) }

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// onPath is how most programs are found.
func onPath(program string) func() (string, bool) {
	return func() (string, bool) {
		path, err := exec.LookPath(program)
		return path, err == nil
	}
}

// servers are those that the rivals of a subject need.
type servers struct {
	running map[string]*server // by kind
	absent  map[string]error   // why not
}

// lasting are servers that no subject stops: the tests share them. The mutex is for those that run at the same time.
var lasting struct {
	mu  sync.Mutex // protects all
	all *servers   // nil: each subject has its own
}

// startServers starts what the variants need. What is not installed is absent, and its variants are not run.
func startServers(ctx context.Context, core int, list []variant) (_ *servers, err error) {
	lasting.mu.Lock()
	defer lasting.mu.Unlock()
	all := lasting.all
	if all == nil {
		all = &servers{running: make(map[string]*server), absent: make(map[string]error)}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, all.stop())
		}
	}()
	for _, v := range list {
		if v.server == nil || all.running[v.server.name] != nil || all.absent[v.server.name] != nil {
			continue
		}
		err := placed(core, func() error {
			s, err := startServer(ctx, v.server)
			if err == nil {
				all.running[v.server.name] = s
			}
			return err
		})
		switch {
		case errors.Is(err, errNoServer):
			all.absent[v.server.name] = err
		case err != nil:
			return nil, err
		}
	}
	return all, nil
}

func (s *servers) stop() error {
	if s == lasting.all {
		return nil
	}
	var errs []error
	for _, one := range s.running {
		errs = append(errs, one.stop())
	}
	return errors.Join(errs...)
}

// of returns the server of a kind, nil if there is none. Tests that share servers start more of them at any time.
func (s *servers) of(k *serverKind) *server {
	lasting.mu.Lock()
	defer lasting.mu.Unlock()
	return s.running[k.name]
}

// why returns the reason why there is no server of a kind, nil if there is one.
func (s *servers) why(k *serverKind) error {
	lasting.mu.Lock()
	defer lasting.mu.Unlock()
	return s.absent[k.name]
}

// has tells whether the variant can be run.
func (s *servers) has(v variant) bool { return v.server == nil || s.of(v.server) != nil }

// conn is how to connect to the variant's server, other than Redis.
func (s *servers) conn(v variant) string {
	if v.server == nil || s.of(v.server) == nil {
		return ""
	}
	return s.of(v.server).conn
}

// describe adds which servers there are, and a line for each variant that is not run.
func (s *servers) describe(r *result, list []variant) {
	said := make(map[string]bool)
	for _, v := range list {
		if v.server == nil {
			continue
		}
		absent := s.why(v.server)
		if absent != nil {
			row := make([]string, len(r.table[0]))
			row[0], row[1] = v.name, notRun
			r.table = append(r.table, row)
		}
		if said[v.server.name] {
			continue
		}
		said[v.server.name] = true
		if absent != nil {
			r.notes = append(r.notes, "not run: "+absent.Error())
		} else {
			r.notes = append(r.notes, s.of(v.server).name+": started for this run, with its defaults")
		}
	}
}

// notRun is what a table says of a variant without its server, instead of a figure.
const notRun = "not run"

// chosen lists the variants that a subject measures.
func (b *bench) chosen(subject string) (list []variant) {
	for _, v := range variants {
		if v.measuredIn(subject, b.rivals) {
			list = append(list, v)
		}
	}
	return list
}
