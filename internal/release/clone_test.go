package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/takes"
)

// A repository is one of three modules, at a commit on main that can be released.
type repository struct {
	t   *testing.T
	dir string
}

func newRepository(t *testing.T) repository {
	t.Helper()
	takes.Seconds(t)
	for _, file := range []string{"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"} {
		t.Setenv(file, os.DevNull) // only the repository's own configuration, which a clone does not have
	}
	r := repository{t, t.TempDir()}
	r.write("go.mod", "module "+Path+"\n\ngo 1.26.0\n")
	for _, dir := range []string{"fence", "cmd/holdfast"} {
		up := strings.Repeat("../", strings.Count(dir, "/")+1)
		r.write(dir+"/go.mod", "module "+Path+"/"+dir+"\n\ngo 1.26.0\n\nrequire "+Path+" v0.1.0\n\nreplace "+Path+" => "+up+"\n")
	}
	r.write("fence/fence.go", "package fence\n")
	r.git("init", "-q", "-b", "main")
	for _, c := range [][2]string{{"user.name", "t"}, {"user.email", "t@example.com"}, {"commit.gpgsign", "false"}, {"tag.gpgsign", "false"}} {
		r.git("config", c[0], c[1])
	}
	r.write("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n")
	r.change("something")
	return r
}

func (r repository) write(file, text string) {
	r.t.Helper()
	at := filepath.Join(r.dir, filepath.FromSlash(file))
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		r.t.Fatal(err)
	}
	write(r.t, at, text)
}

func (r repository) git(args ...string) string {
	r.t.Helper()
	out, err := run(r.t.Context(), r.dir, "git", args...)
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// change commits a change that the changelog has.
func (r repository) change(what string) {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, "CHANGELOG.md"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.write("CHANGELOG.md", strings.Replace(string(text), "## [Unreleased]\n", "## [Unreleased]\n\n- "+what+"\n", 1))
	r.git("add", ".")
	r.git("commit", "-q", "-m", what)
}

// state is all that a release may change.
func (r repository) state() string {
	r.t.Helper()
	return r.git("status", "--porcelain", "--branch") + "\n" + r.git("log", "-1", "--format=%H") + "\n" + r.git("tag")
}

func passes(context.Context, string, string) error { return nil }

func (r repository) release(version string) {
	r.t.Helper()
	if _, err := inClone(r.t.Context(), r.dir, version, false, passes); err != nil {
		r.t.Fatal(err)
	}
}

// refuses expects that there is no release, and that nothing has changed.
func (r repository) refuses(version, because string) {
	r.t.Helper()
	before := r.state()
	if _, err := inClone(r.t.Context(), r.dir, version, false, passes); err == nil || !strings.Contains(err.Error(), because) {
		r.t.Errorf("%s: %v, want %q", version, err, because)
	}
	if after := r.state(); after != before {
		r.t.Errorf("%s has left\n%s\nof\n%s", version, after, before)
	}
}

// A release that fails, or is interrupted, leaves the repository as it was, and the next try
// succeeds.
func TestRelease_ThatFailsChangesNothing(t *testing.T) {
	r := newRepository(t)
	before := r.state()
	for _, interrupted := range []bool{false, true} {
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		clone := ""
		_, err := inClone(ctx, r.dir, "v0.1.0", false, func(ctx context.Context, root, _ string) error {
			clone = root
			if !interrupted {
				return errors.New("refused")
			}
			interrupt()
			_, err := run(ctx, root, "git", "status")
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "nothing has changed here") {
			t.Errorf("interrupted %t: %v", interrupted, err)
		}
		if after := r.state(); after != before {
			t.Errorf("interrupted %t, it has left\n%s\nof\n%s", interrupted, after, before)
		}
		if _, err := os.Stat(clone); !os.IsNotExist(err) {
			t.Errorf("the clone %q is left: %v", clone, err)
		}
	}
	if _, err := inClone(t.Context(), r.dir, "v0.1.0", true, passes); err != nil || r.state() != before {
		t.Errorf("dry: %v\n%s", err, r.state())
	}
	r.release("v0.1.0")
	if tags := strings.Fields(r.git("tag")); !slices.Equal(tags, []string{"cmd/holdfast/v0.1.0", "fence/v0.1.0", "v0.1.0"}) {
		t.Error(tags)
	}
}

// A release is of the commit that was HEAD as it began.
func TestRelease_IsOfWhatWasCheckedOut(t *testing.T) {
	r := newRepository(t)
	edit := func(context.Context, string, string) error {
		r.write("fence/fence.go", "package edited\n")
		return nil
	}
	if _, err := inClone(t.Context(), r.dir, "v0.1.0", false, edit); err != nil {
		t.Fatal(err)
	}
	if r.git("show", "fence/v0.1.0:fence/fence.go") != "package fence" || r.git("status", "--porcelain") != "M fence/fence.go" {
		t.Errorf("the release has what was edited meanwhile, or took it away: %q", r.git("status", "--porcelain"))
	}
	r.change("what was edited")
	begun := r.git("rev-parse", "HEAD")
	commit := func(context.Context, string, string) error {
		r.change("meanwhile")
		return nil
	}
	if _, err := inClone(t.Context(), r.dir, "v0.1.1", false, commit); err == nil || !strings.Contains(err.Error(), "was begun on "+begun) {
		t.Errorf("the branch has moved on: %v", err)
	}
	if r.git("tag", "--list", "*v0.1.1") != "" || r.git("rev-parse", "HEAD~1") != begun {
		t.Errorf("it is taken over: %s", r.state())
	}
}

// All tags are taken over or none, and then no commit either.
func TestRelease_TakesOverAllOrNothing(t *testing.T) {
	r := newRepository(t)
	before := r.state()
	inTheWay := func(context.Context, string, string) error {
		r.write(".git/refs/tags/fence/v0.1.0/x", r.git("rev-parse", "HEAD")+"\n")
		return nil
	}
	if _, err := inClone(t.Context(), r.dir, "v0.1.0", false, inTheWay); err == nil {
		t.Error("fence/v0.1.0 cannot be a tag, and is released")
	}
	if err := os.RemoveAll(filepath.Join(r.dir, ".git", "refs", "tags", "fence")); err != nil {
		t.Fatal(err)
	}
	if after := r.state(); after != before {
		t.Errorf("left\n%s\nof\n%s", after, before)
	}
}

// A version is made of a commit that follows the release before it.
func TestRelease_FollowsTheLastOne(t *testing.T) {
	r := newRepository(t)
	r.git("config", "user.useConfigOnly", "true")
	r.git("config", "--unset", "user.email")
	r.refuses("v0.1.0", "user.email")
	r.git("config", "user.email", "t@example.com")
	r.git("checkout", "-q", "-b", "feature")
	r.refuses("v0.1.0", "made on main: feature")
	r.git("checkout", "-q", "--detach")
	r.refuses("v0.1.0", "no branch")
	r.git("checkout", "-q", "main")
	r.release("v0.1.0")
	r.change("more")
	r.git("tag", "kept", "v0.1.0^{}")
	r.git("tag", "-d", "v0.1.0") // as in a clone that has not fetched it
	r.refuses("v0.1.1", "git fetch --tags")
	r.git("tag", "v0.1.0", "kept")
	r.release("v0.2.0")
	r.change("still more")
	r.refuses("v0.1.1", `comes after "v0.1.0", and what is checked out after "v0.2.0"`)
	r.git("checkout", "-q", "-b", "older", "v0.1.0")
	r.change("a mend")
	r.refuses("v0.3.0", `comes after "v0.2.0", and what is checked out after "v0.1.0"`)
	r.release("v0.1.1")
}
