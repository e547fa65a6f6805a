//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/takes"
)

func TestMain(m *testing.M) {
	if os.Getenv(nodeVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// No lock is lost while Redis goes, however many there are. The command does more: nodes go as
// well.
func TestHolds_Survive(t *testing.T) {
	takes.Seconds(t)
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed")
	}
	// With guardians, which wait for long: a busy machine may let a process wait for seconds, and
	// no other node is to take that for its death.
	s := setup{Holds: 60_000, Nodes: 4, Partitions: 61, TTL: 12 * time.Second, Takeover: 8 * time.Second}
	if testing.Short() {
		s.Holds = 6000
	}
	var out bytes.Buffer
	lost, err := s.run(t.Context(), &out, "empty")
	t.Log(out.String())
	if err != nil || lost > 0 {
		t.Errorf("%d locks were lost: %v", lost, err)
	}
}
