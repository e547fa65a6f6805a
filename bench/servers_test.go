package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/await"
)

// What was started for a run ends with it.
func TestServersEnd(t *testing.T) {
	t.Parallel()
	for _, kind := range []*serverKind{postgresKind, mariadbKind, etcdKind, zookeeperKind} {
		t.Run(kind.name, func(t *testing.T) {
			s, err := startServer(t.Context(), kind)
			if errors.Is(err, errNoServer) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(s.name, kind.name+" ") || len(s.name) <= len(kind.name)+1 {
				t.Errorf("%q", s.name)
			}
			pids := s.pids()
			if processCPU(pids) <= 0 {
				t.Errorf("processes %v have used no CPU time", pids)
			}
			if err := s.stop(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
				t.Errorf("%s is still there: %v", s.dir, err)
			}
			for _, pid := range pids {
				// Those that the server has started end a moment after it.
				await.Within(t, 5*time.Second, fmt.Sprintf("process %d ends", pid), func() bool { return syscall.Kill(pid, 0) != nil })
			}
		})
	}
}

// Where a server is not installed, its variants have a line that says so, and the rest is measured.
func TestServersAbsent(t *testing.T) {
	missing := &serverKind{name: "Nobody", debian: "nobody-server", find: func() (string, bool) { return "", false }}
	list := []variant{{name: "here"}, {name: "one", server: missing}, {name: "two", server: missing}}
	s, err := startServers(t.Context(), -1, list)
	if err != nil {
		t.Fatal(err)
	}
	if !s.has(list[0]) || s.has(list[1]) || s.conn(list[1]) != "" {
		t.Errorf("%+v", s)
	}
	r := result{table: [][]string{{"", "rate", "ratio"}, {"here", "1", "1"}}}
	s.describe(&r, list)
	if len(r.table) != 4 || strings.Join(r.table[2], "|") != "one|not run|" || strings.Join(r.table[3], "|") != "two|not run|" {
		t.Errorf("%q", r.table)
	}
	if len(r.notes) != 1 || r.notes[0] != "not run: Nobody: not installed; Debian has it in nobody-server" {
		t.Errorf("%q", r.notes)
	}
}

// A server that cannot start is an error that says why, not one that is absent.
func TestServerFails(t *testing.T) {
	kind := *etcdKind
	kind.find = onPath("sh")
	command := kind.command
	kind.command = func(ctx context.Context, s *server) (*exec.Cmd, error) {
		if _, err := command(ctx, s); err != nil {
			return nil, err
		}
		return exec.Command(s.program, "-c", "echo no disk; exit 1"), nil
	}
	_, err := startServer(t.Context(), &kind)
	if err == nil || errors.Is(err, errNoServer) || !strings.Contains(err.Error(), "no disk") {
		t.Error(err)
	}
}
