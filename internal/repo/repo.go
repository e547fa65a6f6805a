// Package repo finds the repository, for commands and tests that read it.
package repo

import (
	"errors"
	"os"
	"path/filepath"
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
