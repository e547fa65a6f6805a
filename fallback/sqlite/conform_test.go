package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/fallback/sqlite"
)

// directory is one in memory, where there is such, with -short: a disk adds only time.
func directory(t *testing.T) string {
	if testing.Short() {
		if dir, err := os.MkdirTemp("/dev/shm", "holdfast-"); err == nil {
			t.Cleanup(func() {
				if err := os.RemoveAll(dir); err != nil {
					t.Error(err)
				}
			})
			return dir
		}
	}
	return t.TempDir()
}

// newServer is nil where files cannot be told from their copies.
var newServer func(t *testing.T) arbitertest.Server

// Each arbiter opens the file anew, as a process does.
func TestSQLiteConforms(t *testing.T) {
	path := filepath.Join(directory(t), "a file % ?")
	arbitertest.Run(t, arbitertest.Fixture{
		New: func(*testing.T) fallback.Arbiter { return sqlite.New(path, &sqlite.Options{ColdStart: true}) },

		NewServer: newServer,
	})
}
