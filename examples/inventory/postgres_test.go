package main

import (
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/internal/await"
	"github.com/holdfast-go/holdfast/internal/dbserver"
)

// openServer starts a PostgreSQL server for a test.
func openServer(t *testing.T) (dsn string) {
	t.Helper()
	needPostgres(t)
	dsn, stop, err := startPostgres(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return dsn
}

func needPostgres(t *testing.T) {
	t.Helper()
	if _, err := dbserver.FindPostgres(); err != nil {
		t.Skip(err)
	}
}

// The checks with the embedded database are made with a server, which is left as it was.
func TestSaleWithPostgres(t *testing.T) {
	dsn := openServer(t)
	t.Run("locks", func(t *testing.T) {
		code, stdout, stderr := sell(t, t.Context(), "-rungs setnx,ring -duration 1s -processes 3 -goroutines 4 -skus 2 -postgres "+dsn)
		if code != 0 || stderr != "" {
			t.Errorf("exit status %d, stderr %q", code, stderr)
		}
		checkRow(t, stdout, "SET NX PX")
		checkRow(t, stdout, "ring")
		if !strings.Contains(stdout, ", PostgreSQL 1") {
			t.Errorf("stdout: %q", stdout)
		}
	})
	t.Run("sold out", func(t *testing.T) {
		code, stdout, _ := sell(t, t.Context(), "-rungs setnx -duration 1m -skus 2 -stock 50 -processes 2 -goroutines 4 -postgres "+dsn)
		if sold := number(t, row(t, stdout, "SET NX PX")[0]); code != 0 || sold != 100 {
			t.Errorf("exit status %d, sold %g of 100 units", code, sold)
		}
	})
	t.Run("no lock", func(t *testing.T) {
		code, _, stderr := sell(t, t.Context(), "-rungs none -duration 1s -skus 1 -postgres "+dsn)
		if code != 1 || !regexp.MustCompile(`FAILED: no lock at all: \d+ units oversold`).MatchString(stderr) {
			t.Errorf("exit status %d, stderr %q", code, stderr)
		}
	})
	t.Run("stuck token", func(t *testing.T) {
		code, _, stderr := sell(t, t.Context(), "-rungs stuck -duration 500ms -skus 1 -goroutines 2 -postgres "+dsn)
		if code != 1 || !regexp.MustCompile(`FAILED: .*: \d+ fencing tokens were not above`).MatchString(stderr) {
			t.Errorf("exit status %d, stderr %q", code, stderr)
		}
	})
	t.Run("chaos", func(t *testing.T) {
		code, stdout, stderr := sell(t, t.Context(), "-chaos -duration 4s -processes 3 -goroutines 4 -skus 3 -rungs handover,ring -postgres "+dsn)
		if code != 0 || stderr != "" {
			t.Errorf("exit status %d, stderr %q", code, stderr)
		}
		checkRow(t, stdout, "with hand-over")
		checkRow(t, stdout, "ring")
		if !strings.Contains(stdout, " processes were killed") {
			t.Errorf("nobody was killed:\n%s", stdout)
		}
	})
	t.Run("chaos without lock", func(t *testing.T) {
		code, _, stderr := sell(t, t.Context(), "-chaos -rungs none -duration 2s -skus 1 -postgres "+dsn)
		if code != 1 || !regexp.MustCompile(`FAILED: no lock at all: \d+ units oversold`).MatchString(stderr) {
			t.Errorf("exit status %d, stderr %q", code, stderr)
		}
	})
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var schemas int
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'inv%'`).Scan(&schemas); err != nil || schemas != 0 {
		t.Errorf("%d schemas are left, %v", schemas, err)
	}
}

func TestNoPostgresThere(t *testing.T) {
	code, _, stderr := sell(t, t.Context(), "-postgres postgres://nobody@/none?host="+t.TempDir())
	if code != 1 || !strings.HasPrefix(stderr, "inventory: FAILED: -postgres: ") {
		t.Errorf("exit status %d, stderr %q", code, stderr)
	}
}

// A server that was started for the run ends with it, also if the run is killed.
func TestPostgresEndsWithTheParent(t *testing.T) {
	needPostgres(t)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			tmp, err := os.MkdirTemp("", "inventory-test-") // a socket's path is short, and the user postgres's to open
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(tmp) })
			if err := os.Chmod(tmp, 0o777); err != nil {
				t.Fatal(err)
			}
			var stdout lockedBuffer
			cmd := program(t, "-rungs", "setnx", "-duration", "1h", "-goroutines", "2", "-postgres", "local")
			cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
			cmd.Stdout = &stdout
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			killer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
			defer killer.Stop()
			await.Within(t, time.Minute, "a progress line", func() bool { return strings.Contains(stdout.String(), "sold") })
			if left, _ := os.ReadDir(tmp); len(left) != 1 {
				t.Errorf("while it runs: %v", left)
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			await.Until(t, "the directory is empty", func() bool { // the shell empties it after the server has ended
				left, err := os.ReadDir(tmp)
				return err == nil && len(left) == 0
			})
		})
	}
}
