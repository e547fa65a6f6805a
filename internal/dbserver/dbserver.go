//go:build unix

package dbserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// ErrNotInstalled reports that the machine does not have a server.
var ErrNotInstalled = errors.New("not installed")

// startTime limits the start of a server.
const startTime = time.Minute

// A Server is a server that runs.
type Server struct {
	Dir   string // that it works in
	PID   int    // of the shell that started it
	stdin io.Writer
	ended chan struct{}
	log   bytes.Buffer // not before ended is closed
}

// A Script starts a server in the background of a shell, in its directory. $1 is the directory of
// its programs, $2 its own.
type Script struct {
	Start   string
	End     string // ends the process $!
	Account string // runs it where this process is root's, as servers refuse to be
}

// Start starts a server with its programs in bin. A shell waits for the end of its stdin: when this
// process ends, however it does, so does the server, and its directory with it.
func Start(s Script, bin, prefix string) (*Server, error) {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, err
	}
	attr, err := As(s.Account, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	// MariaDB removes what it finds of others in its directory of temporary tables when it starts.
	cmd := exec.Command("sh", "-c", `export TMPDIR="$2"; cd "$2" || exit 1`+s.Start+`
read -r _
`+s.End+`
wait
cd / && rm -rf "$2"`, "sh", bin, dir)
	x := &Server{Dir: dir, ended: make(chan struct{})}
	cmd.SysProcAttr, cmd.Stderr = attr, &x.log
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	x.PID, x.stdin = cmd.Process.Pid, stdin
	go func() { _ = cmd.Wait(); close(x.ended) }()
	return x, nil
}

// Stop ends the server, and removes its directory.
func (s *Server) Stop() error {
	_, _ = io.WriteString(s.stdin, "\n")
	<-s.ended
	return os.RemoveAll(s.Dir) // where the shell could not
}

// Await returns when ask succeeds. Else it stops the server, and returns an error with its log.
func (s *Server) Await(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
			continue
		case <-s.ended:
			err = errors.New("the server did not start")
		case <-ctx.Done():
		}
		stopped := s.Stop()
		return errors.Join(fmt.Errorf("%w\n%s", err, s.log.Bytes()), stopped)
	}
}

// FindPostgres returns the directory of initdb and postgres: Debian's newest, or that in PATH.
func FindPostgres() (string, error) {
	list, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if path, err := exec.LookPath("initdb"); err == nil {
		list = append(list, path)
	}
	for _, path := range slices.Backward(list) {
		if path, err := filepath.EvalSymlinks(path); err == nil { // postgres is beside the real one
			return filepath.Dir(path), nil
		}
	}
	return "", ErrNotInstalled
}

// As gives the directory to an account if this process is root's, and returns the attributes that
// make a process the account's. An empty account is that of this process.
func As(account, dir string) (*syscall.SysProcAttr, error) {
	if account == "" || os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(account)
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	credential := &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return &syscall.SysProcAttr{Credential: credential}, os.Chown(dir, int(uid), int(gid))
}
