package repo_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-go/holdfast/internal/repo"
)

func TestRoot(t *testing.T) {
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "internal", "repo", "repo_test.go")); err != nil {
		t.Error(err)
	}
	t.Chdir(t.TempDir())
	if root, err := repo.Root(); err == nil {
		t.Errorf("outside of the repository: %s", root)
	}
}
