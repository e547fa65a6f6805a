package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/arbitertest"
	"github.com/holdfast-go/holdfast/fallback/sqlite"
)

// Each arbiter opens the file anew, as a process does.
func TestSQLiteConforms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a file % ?")
	arbitertest.Run(t, arbitertest.Fixture{
		New: func(*testing.T) fallback.Arbiter { return sqlite.New(path, &sqlite.Options{ColdStart: true}) },
	})
}
