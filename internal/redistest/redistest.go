// Package redistest runs real redis-servers for tests and benchmarks.
package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Server is a redis-server process of its own, on a free port of the loopback interface. It keeps
// nothing on disk unless its arguments say so. It can be killed and started again on the same port.
// On Linux it ends with the process that started it, however that ends.
type Server struct {
	Addr  string
	args  []string
	dir   string
	place Place

	mu   sync.Mutex // protects cmd
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
}

// A Place is where a server runs, if that is not the loopback interface of all processes.
type Place struct {
	Addr    string   // IP:port to listen on
	Command []string // in front of redis-server, as ip netns exec name: it must become redis-server
	Env     []string // besides this process's own

	// Dial connects to the place. Nil: from where this process is.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Start starts a server for a test and stops it when the test ends. Without a redis-server on the
// machine it skips the test, except where CI is set: there it fails.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, Place{}, freeAddr, args)
}

func start(t testing.TB, p Place, addr func() (string, error), args []string) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("redis-server is not installed")
		}
		t.Skip("redis-server is not installed")
	}
	s, err := launch(p, t.TempDir(), addr, args)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

// New starts a server with its files in dir. args are further arguments of redis-server, as in
// "--maxmemory", "1mb".
func New(dir string, args ...string) (*Server, error) {
	return launch(Place{}, dir, freeAddr, args)
}

// NewAt is New for a server at a place of its own.
func NewAt(p Place, dir string, args ...string) (*Server, error) {
	s := &Server{Addr: p.Addr, place: p, dir: dir, args: append([]string{"--protected-mode", "no"}, args...)}
	return s, s.Restart()
}

func launch(p Place, dir string, addr func() (string, error), args []string) (*Server, error) {
	var err error
	for range 5 { // another process may take the port meanwhile
		s := &Server{args: args, dir: dir, place: p}
		if s.Addr, err = addr(); err != nil {
			return nil, err
		}
		if err = s.Restart(); err == nil {
			return s, nil
		}
	}
	return nil, err
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// Port returns the server's port.
func (s *Server) Port() string {
	_, port, _ := net.SplitHostPort(s.Addr)
	return port
}

func (s *Server) host() string {
	host, _, _ := net.SplitHostPort(s.Addr)
	return host
}

// Restart kills the server if it runs, starts it again, and waits until it answers.
func (s *Server) Restart() error {
	s.Kill()
	s.mu.Lock()
	defer s.mu.Unlock()
	args := append(slices.Clone(s.place.Command), "redis-server", "--port", s.Port(), "--bind", s.host(), "--save", "",
		"--appendonly", "no", "--dir", s.dir)
	args = append(args, s.args...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), s.place.Env...)
	endWithParent(cmd)
	out, err := os.CreateTemp(s.dir, "redis-*.log")
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	done, started := make(chan struct{}), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread must outlive the server: see endWithParent
		// Nor must it end after that: another server may have been started on it before.
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if started <- err; err == nil {
			_ = cmd.Wait()
			close(done)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.cmd, s.done = cmd, done
	if err := s.ready(done); err != nil {
		log, _ := os.ReadFile(out.Name())
		return fmt.Errorf("%v: %w\n%s", args, err, log)
	}
	return nil
}

// ready waits until the server answers.
func (s *Server) ready(done <-chan struct{}) error {
	dial := s.place.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for {
		select {
		case <-done:
			return errors.New("ended at once")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
		c, err := dial(ctx, "tcp", s.Addr)
		if err != nil {
			continue
		}
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, _ = c.Write([]byte("PING\r\n"))
		buf := make([]byte, 1)
		_, err = c.Read(buf) // '+', or '-' if it wants a password; a server that loads its data answers '-', too
		c.Close()
		if err == nil {
			return nil
		}
	}
}

// Kill ends the server, and processes that it has forked, with SIGKILL and waits for all.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	kill(s.cmd, s.done)
	s.cmd = nil
}

// Signal sends a signal, as SIGSTOP, to the server.
func (s *Server) Signal(sig os.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return os.ErrProcessDone
	}
	return s.cmd.Process.Signal(sig)
}

// Client returns a new client of the server, closed when the test ends.
func (s *Server) Client(t testing.TB) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Replicate makes the server a replica of another one, or a primary if of is nil.
func (s *Server) Replicate(ctx context.Context, of *Server) error {
	c := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer c.Close()
	if of == nil {
		return c.ReplicaOf(ctx, "NO", "ONE").Err()
	}
	return c.ReplicaOf(ctx, of.host(), of.Port()).Err()
}
