package rivals

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/internal/dbserver"
)

// ServerKind is a kind of server that rivals need, other than Redis.
type ServerKind struct {
	Name   string
	Debian string // the package that it comes in
	user   string // the user that runs it where root must not; empty: the one that runs this
	Find   func() (program string, ok bool)
	// command prepares the server's directory and sets conn.
	command func(ctx context.Context, s *Server) (*exec.Cmd, error)
	// version asks the server, at conn. It may fail until the server is ready.
	version func(ctx context.Context, conn string) (string, error)
	end     syscall.Signal // ends it at once, with what it has started: its data is worth nothing
}

// Server is a server of this run.
type Server struct {
	kind    *ServerKind
	program string
	Conn    string // how to connect
	Name    string // with its version
	port    string // that was free a moment ago
	dir     string // for its files; removed with it
	attr    *syscall.SysProcAttr
	Cmd     *exec.Cmd
	done    chan struct{} // closed when cmd has ended
}

// errNoServer says that a kind of server is not installed.
var errNoServer = errors.New("not installed")

const serverStart = 30 * time.Second // what a server may take until it answers

// startServer starts a server with its defaults, but for its port and the number of connections,
// and waits until it answers. It ends with this process at the latest.
func startServer(ctx context.Context, kind *ServerKind) (s *Server, err error) {
	program, ok := kind.Find()
	if !ok {
		return nil, fmt.Errorf("%s: %w; Debian has it in %s", kind.Name, errNoServer, kind.Debian)
	}
	for range 3 { // another process may take the port meanwhile
		s = &Server{kind: kind, program: program, done: make(chan struct{})}
		if err = s.start(ctx); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind.Name, err)
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) (err error) {
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
	cmd.Env = append(os.Environ(), "TMPDIR="+s.dir)
	cmd.Dir, cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = s.dir, harness.EndsWithUs(s.attr, s.kind.end), log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	s.Cmd = cmd
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
func (s *Server) ready(ctx context.Context) error {
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
		name, err := s.kind.version(ctx, s.Conn)
		if err == nil {
			s.Name = name
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
func (s *Server) prepare(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+s.dir) // in /tmp, a MariaDB that starts removes other ones' tables
	cmd.Dir, cmd.SysProcAttr = s.dir, harness.EndsWithUs(s.attr, syscall.SIGKILL)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(program), err, bytes.TrimSpace(out))
	}
	return nil
}

// stop ends the server and waits for it.
func (s *Server) stop() error {
	if s.Cmd != nil {
		_ = s.Cmd.Process.Signal(s.kind.end) // it may have ended
		<-s.done
	}
	return os.RemoveAll(s.dir)
}

// PIDs lists the processes of the server: those that it has started may do the work.
func (s *Server) PIDs() []int { return append(harness.Children(s.Cmd.Process.Pid), s.Cmd.Process.Pid) }

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

// Servers are those that the rivals of a subject need.
type Servers struct {
	Running map[string]*Server // by kind
	Absent  map[string]error   // why not
}

// Lasting are servers that no subject stops: the tests share them. The mutex is for those that run
// at the same time.
var Lasting struct {
	mu  sync.Mutex // protects all
	All *Servers   // nil: each subject has its own
}

// StartServers starts what the variants need. What is not installed is absent, and its variants are
// not run.
func StartServers(ctx context.Context, core int, list []Variant) (_ *Servers, err error) {
	Lasting.mu.Lock()
	defer Lasting.mu.Unlock()
	all := Lasting.All
	if all == nil {
		all = &Servers{Running: make(map[string]*Server), Absent: make(map[string]error)}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, all.Stop())
		}
	}()
	for _, v := range list {
		if v.Server == nil || all.Running[v.Server.Name] != nil || all.Absent[v.Server.Name] != nil {
			continue
		}
		err := harness.Placed(core, func() error {
			s, err := startServer(ctx, v.Server)
			if err == nil {
				all.Running[v.Server.Name] = s
			}
			return err
		})
		switch {
		case errors.Is(err, errNoServer):
			all.Absent[v.Server.Name] = err
		case err != nil:
			return nil, err
		}
	}
	return all, nil
}

func (s *Servers) Stop() error {
	if s == Lasting.All {
		return nil
	}
	var errs []error
	for _, one := range s.Running {
		errs = append(errs, one.stop())
	}
	return errors.Join(errs...)
}

// Of returns the server of a kind, nil if there is none. Tests that share servers start more of
// them at any time.
func (s *Servers) Of(k *ServerKind) *Server {
	Lasting.mu.Lock()
	defer Lasting.mu.Unlock()
	return s.Running[k.Name]
}

// Why returns the reason why there is no server of a kind, nil if there is one.
func (s *Servers) Why(k *ServerKind) error {
	Lasting.mu.Lock()
	defer Lasting.mu.Unlock()
	return s.Absent[k.Name]
}

// Has tells whether the variant can be run.
func (s *Servers) Has(v Variant) bool { return v.Server == nil || s.Of(v.Server) != nil }

// Conn is how to connect to the variant's server, other than Redis.
func (s *Servers) Conn(v Variant) string {
	if v.Server == nil || s.Of(v.Server) == nil {
		return ""
	}
	return s.Of(v.Server).Conn
}

// CPU is what the servers that the variant uses have used so far.
func (s *Servers) CPU(ctx context.Context, admin *redis.Client, v Variant) (time.Duration, error) {
	if v.Server != nil {
		return harness.ProcessCPU(s.Of(v.Server).PIDs()), nil
	}
	return harness.ServerCPU(ctx, admin)
}

// Tell notes those that run as servers of this run.
func (s *Servers) Tell(b *harness.Bench) {
	for _, name := range slices.Sorted(maps.Keys(s.Running)) {
		b.Serves(s.Running[name].Name)
	}
}

// Chosen lists the variants that a subject measures.
func Chosen(subject string, all bool) (list []Variant) {
	for _, v := range Variants {
		if v.MeasuredIn(subject, all) {
			list = append(list, v)
		}
	}
	return list
}
