// Package repo finds the repository, for commands and tests that read it.
package repo

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Root returns the root of the repository that the working directory is in.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("repo: no go.work above the working directory: not in a clone of the repository")
		}
		dir = up
	}
}

// GoFiles calls f with each Go file below root, those in testdata and in hidden directories left
// out. It ends with the first error.
func GoFiles(root string, f func(file string) error) error {
	return filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, ".go"):
			return nil
		}
		return f(file)
	})
}
