package rolling

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

var (
	older = flag.String("rolling.older", "", "`commit` to build the older nodes from; empty: skip")
	apart = flag.Bool("rolling.apart", false, "nodes of the older commit have no stream to those of this one: they speak other versions")
	lasts = flag.Duration("rolling.for", 20*time.Second, "how long each node locks")
)

type result struct{ Locks, Failed, Overlaps, Linked int }

// command runs a program in a directory, and fails the test with what it says.
func command(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", c.Args, err, out)
	}
}

// olderMember builds the member at the older commit, in a clone of the repository, and returns it.
func olderMember(t *testing.T, commit string) string {
	t.Helper()
	dir, bin := t.TempDir(), filepath.Join(t.TempDir(), "older")
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	command(t, root, "git", "clone", "-q", "--no-checkout", "--shared", root, dir)
	command(t, dir, "git", "checkout", "-q", commit)
	source, err := os.ReadFile("member/main.go")
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "internal", "rolling", "member")
	if err := os.MkdirAll(at, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "main.go"), source, 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, dir, "go", "build", "-o", bin, "./internal/rolling/member")
	return bin
}

// TestUpgrade starts two older nodes, and two of this commit beside them. No Lock fails, and no two
// callers have a key at the same time. Each node has a stream to all others, or with -rolling.apart
// to the one of its own version: nodes without one share partitions by way of the arbiter.
func TestUpgrade(t *testing.T) {
	if *older == "" {
		t.Skip("without -rolling.older there is nothing to compare with")
	}
	t.Setenv("CI", "1") // a release rests on it: without redis-server it fails
	now := filepath.Join(t.TempDir(), "now")
	command(t, ".", "go", "build", "-o", now, "./member")
	before := olderMember(t, *older)
	addr := redistest.Start(t).Addr
	type node struct {
		name     string
		cmd      *exec.Cmd
		out, err bytes.Buffer
	}
	var nodes []*node
	for _, x := range [][2]string{{"older-1", before}, {"older-2", before}, {"now-1", now}, {"now-2", now}} {
		n := &node{name: x[0], cmd: exec.CommandContext(t.Context(), x[1], addr, lasts.String(), x[0])}
		n.cmd.Stdout, n.cmd.Stderr = &n.out, &n.err
		if err := n.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	linked := len(nodes) - 1
	if *apart {
		linked = 1
	}
	for _, n := range nodes {
		failed := n.cmd.Wait()
		var r result
		if err := json.Unmarshal(n.out.Bytes(), &r); err != nil || failed != nil {
			t.Errorf("%s: %v, %v\n%s", n.name, err, failed, n.err.Bytes())
			continue
		}
		t.Logf("%s: %+v", n.name, r)
		if r.Locks == 0 || r.Failed > 0 || r.Overlaps > 0 {
			t.Errorf("%s: %+v\n%s", n.name, r, n.err.Bytes())
		}
		if r.Linked != linked {
			t.Errorf("%s had a stream to %d other nodes, want %d", n.name, r.Linked, linked)
		}
	}
}
