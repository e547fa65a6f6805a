package rivals

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/bench/harness"
	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/dbserver"
)

// A server that was started for a run ends with it.
func TestServersEnd(t *testing.T) {
	t.Parallel()
	for _, kind := range []*ServerKind{PostgresKind, EtcdKind, ZookeeperKind} {
		t.Run(kind.Name, func(t *testing.T) {
			s, err := startServer(t.Context(), kind)
			if errors.Is(err, dbserver.ErrNotInstalled) {
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
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(s.Dir); !os.IsNotExist(err) {
				t.Errorf("%s is still there: %v", s.Dir, err)
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
	kind.script.Start = "\necho no disk for %[1]s >&2; exit 1"
	_, err := startServer(t.Context(), &kind)
	if err == nil || errors.Is(err, dbserver.ErrNotInstalled) || !strings.Contains(err.Error(), "no disk") {
		t.Error(err)
	}
}
