package rolling

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// deployed is a process of a deployment that is under way.
type deployed struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	in   io.Closer
	out  *bufio.Scanner
	err  bytes.Buffer
}

// deploy starts a member with a SessionTTL, and waits until it may lock.
func deploy(t *testing.T, program, addr, name string, ttl time.Duration) *deployed {
	t.Helper()
	d := &deployed{t: t, name: name, cmd: exec.CommandContext(t.Context(), program, addr, "5m", name, ttl.String())}
	in, err := d.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.in, d.out, d.cmd.Stderr = in, bufio.NewScanner(out), &d.err
	begin := time.Now()
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !d.out.Scan() || d.out.Text() != "ready" {
		_ = d.cmd.Wait()
		t.Fatalf("%s does not start: %s", name, d.err.Bytes())
	}
	t.Logf("%s, with a SessionTTL of %v, may lock after %v", name, ttl, time.Since(begin).Round(time.Millisecond))
	return d
}

// replaced ends a process, as a deployment does once its successor is ready.
func (d *deployed) replaced() {
	d.t.Helper()
	_ = d.in.Close()
	var r result
	answered := d.out.Scan()
	text := d.out.Text()
	err := d.cmd.Wait()
	if !answered || json.NewDecoder(strings.NewReader(text)).Decode(&r) != nil || err != nil {
		d.t.Fatalf("%s: %v: %q, %s", d.name, err, text, d.err.Bytes())
	}
	d.t.Logf("%s: %+v", d.name, r)
	if r.Locks == 0 || r.Failed > 0 || r.Overlaps > 0 {
		d.t.Errorf("%s: %+v\n%s", d.name, r, d.err.Bytes())
	}
}

// TestSessionTTL replaces the processes of a service, one after another, by those of a deployment
// with a longer SessionTTL, and so a longer Grace, and then back. All lock the same keys meanwhile,
// and each has a lock for all of its life. No Lock fails, no lock is lost, and no two callers have
// a key at the same time.
func TestSessionTTL(t *testing.T) {
	takes.Seconds(t)
	program := filepath.Join(t.TempDir(), "member")
	command(t, ".", "go", "build", "-o", program, "./member")
	addr := redistest.Start(t).Addr
	running := []*deployed{deploy(t, program, addr, "first-1", 10*time.Second), deploy(t, program, addr, "first-2", 10*time.Second)}
	for _, next := range []struct {
		name string
		ttl  time.Duration
	}{{"longer", 25 * time.Second}, {"back", 10 * time.Second}} {
		for i, old := range running {
			running[i] = deploy(t, program, addr, next.name+"-"+string(rune('1'+i)), next.ttl)
			old.replaced()
		}
	}
	for _, d := range running {
		d.replaced()
	}
}
