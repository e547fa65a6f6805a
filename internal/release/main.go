// Command release makes a release: see RELEASING.md.
//
//	go run ./internal/release v0.2.0        # sets versions, checks, commits and tags; pushes nothing
//	go run ./internal/release -dry v0.2.0   # the same in a clone, which is removed
//	go run ./internal/release -apart v0.2.0 # nodes of the last release have no stream to those of this one
//	go run ./internal/release -api          # what differs from the last tag in the packages' APIs
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/repo"
)

func main() {
	dry := flag.Bool("dry", false, "in a clone, which is removed")
	api := flag.Bool("api", false, "only tell what differs from the last tag")
	apart := flag.Bool("apart", false, "nodes of the last release have no stream to those of this one: they speak other versions")
	flag.Parse()
	if err := command(*dry, *api, *apart, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func command(dry, api, apart bool, version string) error {
	root, err := repo.Root()
	if err != nil {
		return err
	}
	if api {
		last, err := base(root, "")
		if err == nil {
			_, err = compare(root, last)
		}
		return err
	}
	if dry {
		clone, err := os.MkdirTemp("", "holdfast-release-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(clone) }()
		if _, err := run(root, "git", "clone", "-q", root, clone); err != nil {
			return err
		}
		root = clone
	}
	tags, err := release(root, version, func(root, version string) error { return check(root, version, apart) })
	if err != nil {
		return err
	}
	if dry {
		fmt.Println("nothing was changed; this would be tagged:", strings.Join(tags, " "))
		return nil
	}
	fmt.Println("Look at it (git show), and then:\n\n\tgit push --atomic origin HEAD", strings.Join(tags, " "))
	return nil
}

var (
	versions          = regexp.MustCompile(`^v[01]\.(0|[1-9]\d*)\.(0|[1-9]\d*)$`)
	unreleasedSection = regexp.MustCompile(`(?s)\n## \[Unreleased\]\n(.*?)(\n## \[|\z)`)
)

// release sets the version everywhere, checks the result, and makes a commit and the tags. It
// returns the names of the tags. What it has changed when it fails is left in the working tree;
// without a commit there is no tag.
func release(root, version string, check func(root, version string) error) (tags []string, err error) {
	if !versions.MatchString(version) {
		return nil, fmt.Errorf("release: %q is no version such as v0.2.0; from v2 on the modules' paths would have to change", version)
	}
	if out, err := run(root, "git", "status", "--porcelain"); err != nil || len(out) > 0 {
		return nil, errors.Join(fmt.Errorf("release: commit or remove first:\n%s", out), err)
	}
	if _, err := base(root, version); err != nil {
		return nil, err
	}
	all, err := Modules(root)
	if err != nil {
		return nil, err
	}
	var commands []Module
	for _, m := range all {
		if !m.Released {
			continue
		}
		tag := m.Tag(version)
		if out, err := run(root, "git", "tag", "--list", tag); err != nil || len(out) > 0 {
			return nil, errors.Join(fmt.Errorf("release: there is a tag %s", tag), err)
		}
		tags = append(tags, tag)
		if m.IsCommand() {
			commands = append(commands, m)
		}
	}
	if err := changelog(filepath.Join(root, "CHANGELOG.md"), version); err != nil {
		return nil, err
	}
	if err := Set(root, all, version); err != nil {
		return nil, err
	}
	if err := check(root, version); err != nil {
		return nil, err
	}
	if _, err := run(root, "git", "commit", "-q", "-a", "-m", "Release "+version); err != nil {
		return nil, err
	}
	for _, tag := range tags {
		if slices.ContainsFunc(commands, func(m Module) bool { return m.Tag(version) == tag }) {
			continue
		}
		if err := tagHead(root, version, tag); err != nil {
			return nil, err
		}
	}
	return tags, tagCommands(root, version, commands)
}

func tagHead(root, version, tag string) error {
	_, err := run(root, "git", "tag", "-a", "-m", "Holdfast "+version, tag)
	return err
}

// tagCommands tags the commands at a commit beside the branch, in which they replace nothing: the branch
// keeps the replacements.
func tagCommands(root, version string, commands []Module) error {
	for _, m := range commands {
		if err := m.unreplace(filepath.Join(root, m.Dir, "go.mod")); err != nil {
			return err
		}
	}
	if _, err := run(root, "git", "commit", "-q", "-a", "-m", "Release "+version+": commands without replacements"); err != nil {
		return err
	}
	var failed error
	for _, m := range commands {
		failed = errors.Join(failed, tagHead(root, version, m.Tag(version)))
	}
	_, err := run(root, "git", "reset", "-q", "--hard", "HEAD~1") // also if a tag is missing
	return errors.Join(failed, err)
}

// changelog gives what is unreleased a version and a date.
func changelog(file, version string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	found := unreleasedSection.FindSubmatch(text)
	if found == nil || strings.TrimSpace(string(found[1])) == "" {
		return errors.New("release: CHANGELOG.md says nothing under [Unreleased]")
	}
	section := fmt.Sprintf("\n## [Unreleased]\n\n## [%s] - %s\n", strings.TrimPrefix(version, "v"), time.Now().UTC().Format(time.DateOnly))
	return os.WriteFile(file, []byte(strings.Replace(string(text), "\n## [Unreleased]\n", section, 1)), 0o644)
}

// check builds every module as it is released, runs nodes beside those of the last release, and
// compares APIs.
func check(root, version string, apart bool) error {
	all, err := Modules(root)
	if err != nil {
		return err
	}
	for _, m := range all {
		for _, args := range [][]string{{"mod", "tidy", "-diff"}, {"vet", "./..."}} {
			if _, err := run(filepath.Join(root, m.Dir), "go", args...); err != nil {
				return err
			}
		}
	}
	if _, err := run(root, "go", "test", "-count=1", "-timeout", "30m", "./internal/release", "-release.build"); err != nil {
		return err
	}
	last, err := base(root, version)
	if err != nil {
		return err
	}
	if last != "" {
		if _, err := run(root, "go", "test", "-count=1", "-run=Upgrade", "./internal/rolling", "-rolling.older="+last, fmt.Sprint("-rolling.apart=", apart)); err != nil {
			return err
		}
	}
	incompatible, err := compare(root, last)
	if err != nil {
		return err
	}
	return permits(last, version, incompatible)
}
