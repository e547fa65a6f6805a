package sqlite_test

import (
	"database/sql"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
	"github.com/holdfast-go/holdfast/fallback/sqlite"
)

// Describe leaves a file that is not the application's as it is, and makes none.
func TestSQLite_DescribeChangesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "of another program")
	db, err := sql.Open("sqlite", path)
	if err == nil {
		_, err = db.Exec(`CREATE TABLE orders (id INTEGER)`)
	}
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	before := contents(t, dir)
	for _, file := range []string{path, empty, filepath.Join(dir, "missing")} {
		_, err := sqlite.New(file, nil).(fallback.Describer).Describe(t.Context(), "ns")
		if !errors.Is(err, fallback.ErrNoNamespace) {
			t.Errorf("%s: %v", file, err)
		}
	}
	if after := contents(t, dir); !maps.Equal(after, before) {
		t.Errorf("the files %v were %v, or have changed", slices.Collect(maps.Keys(after)), slices.Collect(maps.Keys(before)))
	}
}

// Describe finds the namespace beside processes that use it, and after them.
func TestSQLite_DescribeFindsANamespace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks")
	n, err := sqlite.New(path, cold).Attach(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, path := range []string{path, link} {
			found, err := sqlite.New(path, nil).(fallback.Describer).Describe(t.Context(), settings.Namespace)
			if err != nil || found.Partitions != settings.Partitions {
				t.Errorf("%s: %+v, %v", path, found, err)
			}
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if all := contents(t, filepath.Dir(path)); len(all) != 1 {
		t.Errorf("it has left files beside the one of the namespace: %v", slices.Collect(maps.Keys(all)))
	}
}

// contents returns the files of a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for _, x := range all {
		text, err := os.ReadFile(filepath.Join(dir, x.Name()))
		if err != nil {
			t.Fatal(err)
		}
		found[x.Name()] = string(text)
	}
	return found
}
