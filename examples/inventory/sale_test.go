package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/await"
)

// sell runs the example in this process; its workers are this test binary, with its race detector.
func sell(t *testing.T, ctx context.Context, args string) (code int, stdout, stderr string) {
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

// number reads a cell such as "12,345" or "98 %".
func number(t *testing.T, cell string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(strings.TrimSuffix(strings.ReplaceAll(cell, ",", ""), " %"), 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// checkRow checks the row of a lock that does its duty.
func checkRow(t *testing.T, stdout, title string) {
	t.Helper()
	cells := row(t, stdout, title)
	if len(cells) != 10 {
		t.Fatalf("%s: %q", title, cells)
	}
	if sold := number(t, cells[0]); sold < 1 {
		t.Errorf("%s: %g sold", title, sold)
	}
	if oversold := number(t, cells[1]); oversold != 0 {
		t.Errorf("%s: %g oversold", title, oversold)
	}
	if jain := number(t, cells[8]); jain <= 0 || jain > 1 {
		t.Errorf("%s: a Jain index of %g", title, jain)
	}
}

func TestSaleWithSetnx(t *testing.T) {
	code, stdout, stderr := sell(t, t.Context(), "-rungs setnx -duration 1s -processes 3 -goroutines 4 -skus 2")
	if code != 0 || stderr != "" {
		t.Errorf("exit status %d, stderr %q", code, stderr)
	}
	checkRow(t, stdout, "SET NX PX")
	if commands := number(t, row(t, stdout, "SET NX PX")[7]); commands < 2 {
		t.Errorf("%g commands per sale", commands)
	}
	if !strings.HasSuffix(stdout, "\nNo unit was sold twice.\n") {
		t.Errorf("stdout: %q", stdout)
	}
}

// The checks can fail: without a lock, units are sold twice, and the run says so.
func TestSaleWithoutLockFails(t *testing.T) {
	code, stdout, stderr := sell(t, t.Context(), "-rungs none -duration 500ms -skus 1")
	if code != 1 || !regexp.MustCompile(`FAILED: no lock at all: \d+ units oversold`).MatchString(stderr) {
		t.Errorf("exit status %d, stderr %q", code, stderr)
	}
	if oversold := number(t, row(t, stdout, "no lock at all")[1]); oversold < 1 {
		t.Errorf("%g oversold", oversold)
	}
	if strings.Contains(stdout, "No unit") {
		t.Errorf("stdout: %q", stdout)
	}
}

// Sold out without a lock: more is sold than there was.
func TestSaleWithoutLockSellsTooMuch(t *testing.T) {
	code, stdout, stderr := sell(t, t.Context(), "-rungs none -duration 20s -skus 1 -stock 500")
	if code != 1 || !strings.Contains(stderr, "of the 500 units of sku-1") {
		t.Errorf("exit status %d, stderr %q", code, stderr)
	}
	if sold := number(t, row(t, stdout, "no lock at all")[0]); sold <= 500 {
		t.Errorf("sold %g of 500 units", sold)
	}
}

// Processes that are killed take nothing with them but their locks, for a while.
func TestSaleWithChaos(t *testing.T) {
	for name, title := range map[string]string{"setnx": "SET NX PX", "handover": "with hand-over", "ring": "ring"} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := sell(t, t.Context(), "-chaos -duration 7s -processes 3 -goroutines 4 -skus 3 -rungs "+name)
			if code != 0 || stderr != "" {
				t.Errorf("exit status %d, stderr %q", code, stderr)
			}
			checkRow(t, stdout, title)
			if !regexp.MustCompile(title + `: [1-4] processes were killed, and as many started\n`).MatchString(stdout) {
				t.Errorf("nobody was killed:\n%s", stdout)
			}
		})
	}
}

// With chaos, too, the checks can fail.
func TestSaleWithChaosWithoutLockFails(t *testing.T) {
	code, _, stderr := sell(t, t.Context(), "-chaos -rungs none -duration 2s -skus 1")
	if code != 1 || !regexp.MustCompile(`FAILED: no lock at all: \d+ units oversold`).MatchString(stderr) {
		t.Errorf("exit status %d, stderr %q", code, stderr)
	}
}

// A lock that excludes, but whose tokens do not rise, fails as well.
func TestSaleWithStuckTokenFails(t *testing.T) {
	code, stdout, stderr := sell(t, t.Context(), "-rungs stuck -duration 500ms -skus 1 -goroutines 2")
	if code != 1 || !regexp.MustCompile(`FAILED: .*: \d+ fencing tokens were not above`).MatchString(stderr) {
		t.Errorf("exit status %d, stderr %q", code, stderr)
	}
	// Only the first sale's token is above the zero of the empty shelf.
	if sold := number(t, row(t, stdout, "a token that stands still")[0]); sold != 1 {
		t.Errorf("sold %g", sold)
	}
}

func TestSaleSellsOut(t *testing.T) {
	code, stdout, _ := sell(t, t.Context(), "-rungs setnx -duration 1m -skus 2 -stock 50 -processes 2 -goroutines 4")
	if code != 0 {
		t.Errorf("exit status %d", code)
	}
	if sold := number(t, row(t, stdout, "SET NX PX")[0]); sold != 100 {
		t.Errorf("sold %g of 100 units", sold)
	}
	if !strings.Contains(stdout, "SET NX PX: sold out after ") {
		t.Errorf("stdout: %q", stdout)
	}
}

func TestSaleInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	timer := time.AfterFunc(2*time.Second, func() { cancel(errors.New("interrupted by the test")) })
	defer timer.Stop()
	begin := time.Now()
	code, _, stderr := sell(t, ctx, "-rungs setnx -duration 1m -processes 2")
	if code != 1 || stderr != "inventory: FAILED: SET NX PX: interrupted by the test\n" {
		t.Errorf("exit status %d, stderr %q", code, stderr)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}

// program is the example in a process of its own: this binary, which runs main (see TestMain).
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if testing.Short() {
		t.Skip("runs the whole example")
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), mainEnv+"=1")
	return cmd
}

func TestExample(t *testing.T) {
	cmd := program(t, "-duration", "400ms")
	out, err := cmd.CombinedOutput()
	t.Logf("\n%s", out)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rungs {
		if !r.hidden && !r.looks {
			checkRow(t, string(out), r.title)
		}
	}
	if ratio := row(t, string(out), rungs[0].title)[3]; ratio != "1.00" {
		t.Errorf("ratio of the first line: %s", ratio)
	}
	if !strings.Contains(string(out), "every fencing token was above the one before it") {
		t.Error("no verdict")
	}
}

// No worker outlives the parent, however it ends: they inherit its stderr, so reading that to its
// end, as Wait does, takes until the last of them is gone.
func TestWorkersEndWithTheParent(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			var stdout, stderr lockedBuffer
			cmd := program(t, "-rungs", "setnx", "-duration", "1h", "-goroutines", "2")
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			killer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
			defer killer.Stop()
			await.Within(t, time.Minute, "the progress line of the first second", func() bool { return strings.Contains(stdout.String(), "sold") })
			begin := time.Now()
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("exit status 0")
			}
			if took := time.Since(begin); took > 3*closeTime {
				t.Errorf("the last worker ended after %v", took)
			}
			if signal == syscall.SIGTERM && stderr.String() != "inventory: FAILED: SET NX PX: terminated signal received\n" {
				t.Errorf("stderr %q", stderr.String())
			}
		})
	}
}
