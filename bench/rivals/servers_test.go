package rivals

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

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/internal/await"
)

// What was started for a run ends with it.
func TestServersEnd(t *testing.T) {
	t.Parallel()
	for _, kind := range []*ServerKind{PostgresKind, mariadbKind, EtcdKind, ZookeeperKind} {
		t.Run(kind.Name, func(t *testing.T) {
			s, err := startServer(t.Context(), kind)
			if errors.Is(err, errNoServer) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(s.Name, kind.Name+" ") || len(s.Name) <= len(kind.Name)+1 {
				t.Errorf("%q", s.Name)
			}
			pids := s.PIDs()
			if harness.ProcessCPU(pids) <= 0 {
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

// A server that cannot start is an error that says why, not one that is absent.
func TestServerFails(t *testing.T) {
	kind := *EtcdKind
	kind.Find = onPath("sh")
	command := kind.command
	kind.command = func(ctx context.Context, s *Server) (*exec.Cmd, error) {
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
