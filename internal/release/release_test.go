package main

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/repo"
	"github.com/holdfast-go/holdfast/internal/takes"
)

// The modules require each other at a version that a tag can have, and find each other in the
// repository until there is one.
func TestModules_RequireEachOtherAtOneVersion(t *testing.T) {
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	all, err := Modules(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]string)
	for _, m := range all {
		text, err := os.ReadFile(filepath.Join(root, m.Dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
			if len(f) < 2 || !slices.Contains(m.Requires, f[0]) || f[1] == "=>" {
				continue
			}
			seen[f[1]] = m.Dir
			if !versions.MatchString(f[1]) || f[1] == "v0.0.0" {
				t.Errorf("%s requires %s %s, which an importer's build would look for: go mod edit -require=%s@ the version of the other modules",
					m.Dir, f[0], f[1], f[0])
			}
		}
	}
	if len(seen) != 1 {
		t.Errorf("the modules require each other at several versions: %v", seen)
	}
}

// A release of the working tree, in a repository of its own.
func TestRelease_SetsVersionsAndTags(t *testing.T) {
	takes.Seconds(t)
	root, err := repo.Root()
	if err != nil {
		t.Fatal(err)
	}
	list, err := files(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		out, err := run(t.Context(), dir, "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	for _, f := range list {
		if path.Base(f) != "go.mod" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, f))
		if os.IsNotExist(err) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(f)), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, f), string(text))
	}
	write(t, filepath.Join(dir, "CHANGELOG.md"), "# Changelog\n\n## [Unreleased]\n\n- Something.\n")
	git("init", "-q", "-b", "main")
	for _, c := range [][2]string{{"user.name", "t"}, {"user.email", "t@example.com"}, {"commit.gpgsign", "false"}} {
		git("config", c[0], c[1])
	}
	git("add", ".")
	git("commit", "-q", "-m", "all")

	checked := 0
	pass := func(context.Context, string, string) error { checked++; return nil }
	for _, bad := range []string{"", "0.9.0", "v0.9", "v2.0.0", "v0.9.0-rc1", "v00.9.0"} {
		if _, err := inClone(t.Context(), dir, bad, false, pass); err == nil {
			t.Errorf("version %q is taken", bad)
		}
	}
	tags, err := inClone(t.Context(), dir, "v0.9.0", false, pass)
	if err != nil {
		t.Fatal(err)
	}
	if checked != 1 || !slices.Contains(tags, "v0.9.0") || !slices.Contains(tags, "fence/v0.9.0") || slices.Contains(tags, "bench/v0.9.0") {
		t.Errorf("tags %v after %d checks", tags, checked)
	}
	if got := strings.Fields(git("tag", "--points-at", "HEAD")); len(got) != len(tags)-1 {
		t.Errorf("tagged %v, want %v", got, tags)
	}
	const command = "cmd/holdfast/v0.9.0" // beside HEAD, without replacements
	if git("rev-parse", command+"^{}^") != git("rev-parse", "HEAD") || strings.Contains(git("show", command+":cmd/holdfast/go.mod"), "=>") ||
		!strings.Contains(git("show", "HEAD:cmd/holdfast/go.mod"), "=>") {
		t.Errorf("%s is\n%s", command, git("show", command))
	}
	if s := git("status", "--porcelain"); s != "" {
		t.Errorf("not committed: %s", s)
	}
	for file, want := range map[string]string{
		"fence/go.mod": "holdfast v0.9.0\n", "bench/go.mod": "holdfast v0.9.0\n", "CHANGELOG.md": "\n## [Unreleased]\n\n## [0.9.0] - 20",
	} {
		if text, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q: %v", file, want, err)
		}
	}
	if _, err := inClone(t.Context(), dir, "v0.9.0", false, pass); err == nil {
		t.Error("a version is released twice")
	}
	if _, err := inClone(t.Context(), dir, "v0.9.1", false, pass); err == nil || !strings.Contains(err.Error(), "Unreleased") {
		t.Errorf("a release without an entry in the changelog: %v", err)
	}
	write(t, filepath.Join(dir, "new"), "")
	if _, err := inClone(t.Context(), dir, "v0.9.1", false, pass); err == nil || !strings.Contains(err.Error(), "commit") {
		t.Errorf("a release of a tree with changes: %v", err)
	}
}
