//go:build unix

package dbserver_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/dbserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStart(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	script := dbserver.Script{Start: `
cat >there &`, End: "kill $!"}
	s, err := dbserver.Start(script, "", "dbserver-")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Await(t.Context(), func(context.Context) error { _, err := os.Stat(filepath.Join(s.Dir, "there")); return err }); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", s.Dir, err)
	}
}

func TestStart_AServerThatEnds(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s, err := dbserver.Start(dbserver.Script{Start: `
echo no space left >&2; exit 1`}, "", "dbserver-")
	if err != nil {
		t.Fatal(err)
	}
	away := errors.New("away")
	err = s.Await(t.Context(), func(context.Context) error { return away })
	if err == nil || !strings.Contains(err.Error(), "the server did not start") || !strings.Contains(err.Error(), "no space left") {
		t.Error(err)
	}
	if _, err := os.Stat(s.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v", s.Dir, err)
	}
}
