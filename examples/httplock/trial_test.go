package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// climbAll runs the example in this process; its workers are this test binary, with its race
// detector.
func climbAll(t *testing.T, ctx context.Context, args string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs lockedBuffer
	code = run(ctx, strings.Fields(args), &out, &errs)
	if t.Failed() || testing.Verbose() {
		t.Logf("stdout:\n%s\nstderr:\n%s", out.String(), errs.String())
	}
	return code, out.String(), errs.String()
}

// row returns the cells of the table's line that begins with title; cells are two blanks apart.
func row(t *testing.T, stdout, title string) []string {
	t.Helper()
	for line := range strings.Lines(stdout) {
		if rest, ok := strings.CutPrefix(line, title+"  "); ok {
			return regexp.MustCompile(` {2,}`).Split(strings.TrimSpace(rest), -1)
		}
	}
	t.Fatalf("no line for %q in\n%s", title, stdout)
	return nil
}

// number reads a cell such as "12,345".
func number(t *testing.T, cell string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(strings.ReplaceAll(cell, ",", ""), 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// checkRow checks the row of a rung that does its duty, or of one without a lock under load.
func checkRow(t *testing.T, stdout string, r rung) {
	t.Helper()
	cells := row(t, stdout, r.title)
	if len(cells) != 9 {
		t.Fatalf("%s: %q", r.title, cells)
	}
	if number(t, cells[0]) < 1 {
		t.Errorf("%s: no requests", r.title)
	}
	for i, name := range map[int]string{4: "lost", 5: "overlapped"} {
		if n := number(t, cells[i]); (n == 0) != r.locked {
			t.Errorf("%s: %g %s", r.title, n, name)
		}
	}
	if want := map[bool]string{false: "-", true: "0"}[r.fenced]; cells[6] != want {
		t.Errorf("%s: late tokens: %s, want %s", r.title, cells[6], want)
	}
	if n := number(t, cells[8]); n != 0 {
		t.Errorf("%s: %g failed", r.title, n)
	}
}

func TestAllRungs(t *testing.T) {
	var out, errs lockedBuffer
	cmd := program(t, t.Context(), "-duration", "1200ms")
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	stdout := out.String()
	t.Logf("stdout:\n%s", stdout)
	if err != nil || errs.String() != "" {
		t.Errorf("%v, stderr %q", err, errs.String())
	}
	for i, r := range rungs {
		if r.hidden {
			continue
		}
		checkRow(t, stdout, r)
		if want := fmt.Sprintf("[%d/5] %s: 1.", i+1, r.title); !strings.Contains(stdout, want) { // after the first second
			t.Errorf("no progress of %s", r.title)
		}
	}
	commands := func(title string) float64 { return number(t, row(t, stdout, title)[7]) }
	if n := commands("SET NX PX, polled"); n < 2 {
		t.Errorf("%g commands per request with SET NX", n)
	}
	if n := commands("no lock"); n != 0 {
		t.Errorf("%g commands per request without a lock", n)
	}
	if !regexp.MustCompile(`\nWithout a lock [\d,]+ of [\d,]+ updates were lost\. With one none was, and every fencing token`).MatchString(stdout) {
		t.Errorf("no summary in %q", stdout)
	}
}

// The checks can fail: a lock that does not lock is seen.
func TestLeakyLockFails(t *testing.T) {
	code, stdout, stderr := climbAll(t, t.Context(), "-rungs leaky -duration 500ms -processes 2 -clients 16 -resources 1")
	if code != 1 || !regexp.MustCompile(`FAILED: a lock that forgets a method: [1-9]\d* updates were lost, [1-9]`).MatchString(stderr) ||
		!regexp.MustCompile(`[1-9]\d* requests overlapped`).MatchString(stderr) {
		t.Errorf("exit status %d, stderr %q", code, stderr)
	}
	if strings.Contains(stdout, "With one") {
		t.Errorf("stdout: %q", stdout)
	}
}

// A rung that is to have tokens and sends none.
func TestMissingTokensFail(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := climbAll(t, t.Context(), "-rungs tokenless -duration 200ms -processes 1 -clients 2 -resources 1")
	if code != 1 || !regexp.MustCompile(`[1-9]\d* fencing tokens were not above`).MatchString(stderr) ||
		!strings.Contains(stderr, "no request was answered with success; one failed with: 502 Bad Gateway") {
		t.Errorf("exit status %d, stderr %q", code, stderr)
	}
	if !strings.Contains(stdout, "requests failed, one with: 502 Bad Gateway: store: 409 Conflict: the fencing token") {
		t.Errorf("stdout: %q", stdout)
	}
}

// newFleet starts three processes on a rung, and a balancer in front of them.
func newFleet(t *testing.T, rung string, lost context.CancelCauseFunc) (*fleet, *balancer) {
	t.Helper()
	redis, err := startRedis(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.close)
	server, _ := openStore(t, false)
	var stderr lockedBuffer
	f, err := startFleet(t.Context(), order{
		Processes: 3, Rung: rung, Redis: redis.addr, Namespace: "test", Store: server.url, Clients: 8,
	}, &stderr, lost)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	t.Cleanup(func() {
		if err := f.stop(); err != nil && !t.Failed() {
			t.Logf("%v\n%s", err, stderr.String())
		}
	})
	b, err := startBalancer(f.urls(), 8)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	return f, b
}

// With Route each order's requests are all served by one process, though the balancer sends them to
// all.
func TestRouteServesAtTheOwner(t *testing.T) {
	for _, routed := range []bool{false, true} {
		_, b := newFleet(t, map[bool]string{false: "cluster", true: "route"}[routed], func(err error) { t.Error(err) })
		owners := make(map[string]bool)
		for id := range 12 {
			servers := make(map[string]bool)
			for range 3 {
				status, by, body := post(t, fmt.Sprintf("%s/orders/%d/items", b.url, id))
				if status != 200 {
					t.Errorf("%d %s", status, body)
				}
				servers[by] = true
				owners[by] = true
			}
			if want := map[bool]int{false: 3, true: 1}[routed]; len(servers) != want {
				t.Errorf("routed: %v; order %d was served by %d processes", routed, id, len(servers))
			}
		}
		if len(owners) < 2 {
			t.Errorf("all orders were served by one process")
		}
	}
}

func TestProcessThatEnds(t *testing.T) {
	t.Parallel()
	lost := make(chan error, 3)
	f, _ := newFleet(t, "none", func(err error) { lost <- err })
	if err := f.processes[1].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-lost; err.Error() != "worker 1 has ended" {
		t.Error(err)
	}
	if err := f.stop(); err == nil || err.Error() != "worker 1: signal: killed" {
		t.Errorf("%v", err)
	}
}

func TestProcessThatDoesNotStart(t *testing.T) {
	var stderr lockedBuffer
	_, err := startFleet(t.Context(), order{Processes: 2, Rung: "no such rung"}, &stderr, func(error) {})
	if err == nil || !strings.HasPrefix(err.Error(), "worker 0 does not serve\nworker 0: exit status 1") {
		t.Errorf("%v", err)
	}
	if !strings.Contains(stderr.String(), `httplock worker 0: -rungs: no rung "no such rung"`) {
		t.Errorf("stderr %q", stderr.String())
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{50 * time.Millisecond, 1500 * time.Millisecond} { // while processes start, and later
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(after, func() { cancel(errors.New("interrupted by the test")) })
		code, _, stderr := climbAll(t, ctx, "-rungs setnx -duration 5m -processes 2")
		timer.Stop()
		if code != 1 || !strings.HasPrefix(stderr, "httplock: FAILED: SET NX PX, polled: ") || !strings.Contains(stderr, "interrupted by the test") {
			t.Errorf("exit status %d, stderr %q", code, stderr)
		}
	}
}

// program is the example as a user starts it: this binary, by its main.
func program(t *testing.T, ctx context.Context, args ...string) *exec.Cmd {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), mainEnv+"=1")
	return cmd
}

// No worker outlives the parent, however it ends: they inherit its stderr, so reading that to its
// end, as Wait does, takes until the last of them is gone.
func TestWorkersEndWithTheParent(t *testing.T) {
	takes.Seconds(t)
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			var stdout, stderr lockedBuffer
			cmd := program(t, context.Background(), "-rungs", "setnx", "-duration", "10m", "-clients", "8")
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			killer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
			defer killer.Stop()
			await.Within(t, time.Minute, "the progress line of the first second", func() bool { return strings.Contains(stdout.String(), "updates lost") })
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("exit status 0")
			}
			want := "httplock: FAILED: SET NX PX, polled: terminated signal received\n"
			if signal == syscall.SIGTERM && stderr.String() != want {
				t.Errorf("stderr %q", stderr.String())
			}
		})
	}
}
