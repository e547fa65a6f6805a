package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const apidiff = "golang.org/x/exp/cmd/apidiff@v0.0.0-20261014143641-f0251eb4aa3e"

// compare prints the differences in the APIs of the released modules between a tag and the working
// tree, and reports whether anything is incompatible. Without a tag there is nothing to compare
// with.
func compare(ctx context.Context, root, last string) (incompatible bool, err error) {
	if last == "" {
		fmt.Println("release: no tag to compare APIs with")
		return false, nil
	}
	tmp, err := os.MkdirTemp("", "holdfast-api-")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	old := filepath.Join(tmp, "old")
	if _, err := run(ctx, root, "git", "clone", "-q", "--branch", last, root, old); err != nil {
		return false, err
	}
	before, err := Modules(ctx, old)
	if err != nil {
		return false, err
	}
	for _, m := range before {
		if !m.Released {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, m.Dir, "go.mod")); err != nil {
			fmt.Printf("%s is gone\n", m.Path)
			incompatible = true
			continue
		}
		files := make(map[string]string)
		for name, dir := range map[string]string{"old": old, "new": root} {
			files[name] = filepath.Join(tmp, name+".export")
			if _, err := run(ctx, filepath.Join(dir, m.Dir), "go", "run", apidiff, "-m", "-w", files[name], m.Path); err != nil {
				return false, err
			}
		}
		out, err := run(ctx, root, "go", "run", apidiff, "-m", files["old"], files["new"])
		if err != nil {
			return false, err
		}
		fmt.Printf("%s since %s:\n%s", m.Path, last, out)
		incompatible = incompatible || strings.Contains(string(out), "Incompatible changes")
	}
	compile, err := beside(ctx, old, root, before)
	return incompatible || !compile, err
}
