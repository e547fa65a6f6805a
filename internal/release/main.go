// Command release makes a release: see RELEASING.md.
//
//	go run ./internal/release v0.2.0        # sets versions, checks, commits and tags; pushes nothing
//	go run ./internal/release -dry v0.2.0   # the same, and nothing of it is kept
//	go run ./internal/release -apart v0.2.0 # nodes of the last release have no stream to those of this one
//	go run ./internal/release -api          # differences from the last tag in the packages' APIs
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/repo"
)

func main() {
	dry := flag.Bool("dry", false, "keep nothing of it")
	api := flag.Bool("api", false, "only tell what differs from the last tag")
	apart := flag.Bool("apart", false, "nodes of the last release have no stream to those of this one: they speak other versions")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx, *dry, *api, *apart, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func command(ctx context.Context, dry, api, apart bool, args []string) error {
	root, err := repo.Root()
	if err != nil {
		return err
	}
	if api {
		last, err := base(ctx, root, "")
		if err == nil {
			_, err = compare(ctx, root, last)
		}
		return err
	}
	if len(args) != 1 {
		return fmt.Errorf("release: one version, after the flags: make release VERSION=v0.2.0, not %q", args)
	}
	tags, err := inClone(ctx, root, args[0], dry, func(ctx context.Context, root, version string) error { return check(ctx, root, version, apart) })
	if err != nil {
		return err
	}
	if dry {
		fmt.Println("nothing was changed; this would be tagged:", strings.Join(tags, " "))
		return nil
	}
	fmt.Println("Look at it (git show), and then:\n\n\tgit push --atomic origin HEAD", strings.Join(tags, " "))
	fmt.Println("\nor take it back, as long as it is not pushed:\n\n\tgit tag -d", strings.Join(tags, " "), "&& git reset --keep HEAD~1")
	return nil
}

var (
	versions          = regexp.MustCompile(`^v[01]\.(0|[1-9]\d*)\.(0|[1-9]\d*)$`)
	unreleasedSection = regexp.MustCompile(`(?s)\n## \[Unreleased\]\n(.*?)(\n## \[|\z)`)
)

// release sets the version everywhere, checks the result, and makes a commit and the tags. It
// returns the names of the tags. It is for a clone: when it fails its changes are left there.
func release(ctx context.Context, root, version string, check func(ctx context.Context, root, version string) error) (tags []string, err error) {
	all, err := Modules(ctx, root)
	if err != nil {
		return nil, err
	}
	if err := changelog(filepath.Join(root, "CHANGELOG.md"), version); err != nil {
		return nil, err
	}
	if err := Set(ctx, root, all, version); err != nil {
		return nil, err
	}
	if err := check(ctx, root, version); err != nil {
		return nil, err
	}
	if _, err := run(ctx, root, "git", "commit", "-q", "-a", "-m", "Release "+version); err != nil {
		return nil, err
	}
	var commands []Module
	for _, m := range all {
		if !m.Released {
			continue
		}
		tag := m.Tag(version)
		tags = append(tags, tag)
		if m.IsCommand() {
			commands = append(commands, m)
		} else if err := tagHead(ctx, root, version, tag); err != nil {
			return nil, err
		}
	}
	return tags, tagCommands(ctx, root, version, commands)
}

func tagHead(ctx context.Context, root, version, tag string) error {
	_, err := run(ctx, root, "git", "tag", "-a", "-m", "Holdfast "+version, tag)
	return err
}

// tagCommands tags the commands at a commit beside the branch, in which they replace nothing: the
// branch keeps the replacements.
func tagCommands(ctx context.Context, root, version string, commands []Module) error {
	for _, m := range commands {
		if err := m.unreplace(ctx, filepath.Join(root, m.Dir, "go.mod")); err != nil {
			return err
		}
	}
	if _, err := run(ctx, root, "git", "commit", "-q", "-a", "-m", "Release "+version+": commands without replacements"); err != nil {
		return err
	}
	var failed error
	for _, m := range commands {
		failed = errors.Join(failed, tagHead(ctx, root, version, m.Tag(version)))
	}
	_, err := run(ctx, root, "git", "reset", "-q", "--hard", "HEAD~1") // also if a tag is missing
	return errors.Join(failed, err)
}

// changelog gives the unreleased section a version and a date.
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

// check builds every module that a release changes, runs nodes beside those of the last release,
// and compares APIs.
func check(ctx context.Context, root, version string, apart bool) error {
	all, err := Modules(ctx, root)
	if err != nil {
		return err
	}
	for _, m := range all {
		if !m.Released && len(m.Requires) == 0 {
			continue // a program that tests run: the effort to compile FerretDB is of no use here
		}
		fmt.Println("release: go vet of", m.Path)
		for _, args := range [][]string{{"mod", "tidy", "-diff"}, {"vet", "./..."}} {
			if _, err := run(ctx, filepath.Join(root, m.Dir), "go", args...); err != nil {
				return err
			}
		}
	}
	fmt.Println("release: the tests of internal/release, which build a program for each module")
	if _, err := run(ctx, root, "go", "test", "-count=1", "-timeout", "30m", "./internal/release", "-release.build"); err != nil {
		return err
	}
	last, err := base(ctx, root, version)
	if err != nil {
		return err
	}
	if last != "" {
		fmt.Println("release: nodes of", last, "beside those of", version)
		if _, err := run(ctx, root, "go", "test", "-count=1", "-run=Upgrade", "./internal/rolling", "-rolling.older="+last, fmt.Sprint("-rolling.apart=", apart)); err != nil {
			return err
		}
	}
	fmt.Println("release: what packages export")
	incompatible, err := compare(ctx, root, last)
	if err != nil {
		return err
	}
	return permits(last, version, incompatible)
}
