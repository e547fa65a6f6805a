package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Path is that of the module at the repository's root; the others are below it.
const Path = "github.com/holdfast-go/holdfast"

// A Module is one of the repository.
type Module struct {
	Dir      string // slash-separated, relative to the root; "." for the root
	Path     string
	Requires []string // paths of other modules of the repository
	Replaces []string // paths of those that it replaces
	Released bool     // it gets a tag; the others are programs and tests of this repository
}

// Tag is the name of the module's tag for a version.
func (m Module) Tag(version string) string {
	if m.Dir == "." {
		return version
	}
	return m.Dir + "/" + version
}

// IsCommand reports whether the module is a program that is installed with its version: go install
// refuses one that replaces others.
func (m Module) IsCommand() bool { return strings.HasPrefix(m.Dir, "cmd/") }

// unreleased are the modules that only this repository uses.
var unreleased = []string{"bench", "examples/", "internal/", "middleware/matrix", "middleware/ordertest"}

// Modules returns the modules below root, sorted by directory.
func Modules(ctx context.Context, root string) ([]Module, error) {
	var all []Module
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && file != root):
			return fs.SkipDir
		case d.Name() != "go.mod":
			return nil
		}
		m, err := read(ctx, root, file)
		all = append(all, m)
		return err
	})
	slices.SortFunc(all, func(a, b Module) int { return strings.Compare(a.Dir, b.Dir) })
	return all, err
}

// read reads a go.mod.
func read(ctx context.Context, root, file string) (Module, error) {
	out, err := run(ctx, filepath.Dir(file), "go", "mod", "edit", "-json", file)
	if err != nil {
		return Module{}, err
	}
	var mod struct {
		Module  struct{ Path string }
		Require []struct{ Path, Version string }
		Replace []struct{ Old struct{ Path string } }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		return Module{}, fmt.Errorf("%s: %w", file, err)
	}
	dir, err := filepath.Rel(root, filepath.Dir(file))
	if err != nil {
		return Module{}, err
	}
	m := Module{Dir: filepath.ToSlash(dir), Path: mod.Module.Path}
	if want := strings.TrimSuffix(Path+"/"+m.Dir, "/."); m.Path != want {
		return m, fmt.Errorf("%s: the module is %s, must be %s: its directory is its tag's name", file, m.Path, want)
	}
	m.Released = !slices.ContainsFunc(unreleased, func(prefix string) bool { return strings.HasPrefix(m.Dir, prefix) })
	for _, r := range mod.Require {
		if r.Path == Path || strings.HasPrefix(r.Path, Path+"/") {
			m.Requires = append(m.Requires, r.Path)
		}
	}
	for _, r := range mod.Replace {
		m.Replaces = append(m.Replaces, r.Old.Path)
	}
	return m, nil
}

// unreplace takes a module's replacements out of a go.mod.
func (m Module) unreplace(ctx context.Context, file string) error {
	args := []string{"mod", "edit"}
	for _, path := range m.Replaces {
		args = append(args, "-dropreplace="+path)
	}
	_, err := run(ctx, filepath.Dir(file), "go", append(args, file)...)
	return err
}

// Set makes the modules require each other at a version.
func Set(ctx context.Context, root string, all []Module, version string) error {
	for _, m := range all {
		args := []string{"mod", "edit"}
		for _, path := range m.Requires {
			args = append(args, "-require="+path+"@"+version)
		}
		if len(args) == 2 {
			continue
		}
		if _, err := run(ctx, filepath.Join(root, m.Dir), "go", args...); err != nil {
			return err
		}
	}
	return nil
}

// run returns the output of a command. It ends the command when ctx ends, as Ctrl-C does.
func run(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	if name == "git" { // the clone may be another user's
		args = append([]string{"-c", "safe.directory=*"}, args...)
	}
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &stderr
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, 10*time.Second
	// Packages that a clone has in common with one of before are not compiled again: the clone's
	// directory is in no package.
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS="+goflags()+" -trimpath")
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return out, nil
}

// goflags are those of the environment or of go env -w.
var goflags = sync.OnceValue(func() string {
	out, _ := exec.Command("go", "env", "GOFLAGS").Output()
	return strings.TrimSpace(string(out))
})

// files returns the files of the working tree, slash-separated, without those that Git ignores.
func files(ctx context.Context, root string) ([]string, error) {
	out, err := run(ctx, root, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), err
}
