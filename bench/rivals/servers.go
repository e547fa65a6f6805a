package rivals

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/internal/dbserver"
)

// ServerKind is a kind of server that rivals need, other than Redis.
type ServerKind struct {
	Name   string
	Debian string                            // the package that it comes in
	Find   func() (programs string, ok bool) // their directory
	// script starts a server with its defaults, but for its port and the number of connections. In
	// it and in conn %[1]s is the port, and %[2]s another one.
	script dbserver.Script
	conn   string // how to connect
	// version asks the server, at conn. It may fail until the server is ready.
	version func(ctx context.Context, conn string) (string, error)
}

// Server is a server of this run. It ends with this process at the latest.
type Server struct {
	*dbserver.Server
	Conn string // how to connect
	Name string // with its version
}

// startServer starts a server, and waits until it answers.
func startServer(ctx context.Context, kind *ServerKind) (s *Server, err error) {
	programs, ok := kind.Find()
	if !ok {
		return nil, fmt.Errorf("%s: %w; Debian has it in %s", kind.Name, dbserver.ErrNotInstalled, kind.Debian)
	}
	for range 3 { // another process may take the port meanwhile
		if s, err = kind.start(ctx, programs); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind.Name, err)
	}
	return s, nil
}

func (k *ServerKind) start(ctx context.Context, programs string) (*Server, error) {
	var ports [2]any
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		_, ports[i], _ = net.SplitHostPort(l.Addr().String())
		_ = l.Close()
	}
	with := func(text string) string { return fmt.Sprintf(text, ports[:]...) }
	script := k.script
	script.Start = with(script.Start)
	s := &Server{Conn: with(k.conn)}
	var err error
	if s.Server, err = dbserver.Start(script, programs, "holdfast-bench-server-"); err != nil {
		return nil, err
	}
	return s, s.Await(ctx, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		s.Name, err = k.version(ctx, s.Conn)
		return err
	})
}

// PIDs lists the processes of the server: those that it has started may do the work.
func (s *Server) PIDs() []int { return harness.Children(s.PID) }

// onPath is how most programs are found.
func onPath(program string) func() (string, bool) {
	return func() (string, bool) {
		path, err := exec.LookPath(program)
		return filepath.Dir(path), err == nil
	}
}

// Servers are those that the rivals of a subject need.
type Servers struct {
	Running map[string]*Server // by kind
	Absent  map[string]error   // why not
}

// StartServers starts the servers of the variants. A server that is not installed is absent, and
// its variants are not run.
func StartServers(ctx context.Context, core int, list []Variant) (_ *Servers, err error) {
	all := &Servers{Running: make(map[string]*Server), Absent: make(map[string]error)}
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
		case errors.Is(err, dbserver.ErrNotInstalled):
			all.Absent[v.Server.Name] = err
		case err != nil:
			return nil, errors.Join(err, all.Stop())
		}
	}
	return all, nil
}

// Stop ends all servers.
func (s *Servers) Stop() error {
	var errs []error
	for _, one := range s.Running {
		errs = append(errs, one.Stop())
	}
	return errors.Join(errs...)
}

// Of returns the server of a kind, nil if there is none.
func (s *Servers) Of(k *ServerKind) *Server { return s.Running[k.Name] }

// Why returns the reason why there is no server of a kind, nil if there is one.
func (s *Servers) Why(k *ServerKind) error { return s.Absent[k.Name] }

// Has tells whether the variant can be run.
func (s *Servers) Has(v Variant) bool { return v.Server == nil || s.Of(v.Server) != nil }

// Conn is how to connect to the variant's server, other than Redis.
func (s *Servers) Conn(v Variant) string {
	if v.Server == nil || s.Of(v.Server) == nil {
		return ""
	}
	return s.Of(v.Server).Conn
}

// CPU returns the CPU time of the variant's servers so far.
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
