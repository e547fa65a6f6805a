package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// inClone makes a release of HEAD in a clone, and then brings the commit and the tags into the
// repository. A failure or interrupt before has changed nothing there, and edits made there
// meanwhile are not in the release. With dry it brings nothing.
func inClone(ctx context.Context, root, version string, dry bool, check func(ctx context.Context, root, version string) error) (tags []string, err error) {
	if err := refuse(ctx, root, version, dry); err != nil {
		return nil, err
	}
	commit, branch, err := head(ctx, root)
	if err != nil {
		return nil, err
	}
	clone, err := os.MkdirTemp("", "holdfast-release-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(clone) }()
	args, err := identity(ctx, root)
	if err != nil {
		return nil, err
	}
	if _, err := run(ctx, root, "git", slices.Concat([]string{"clone", "-q"}, args, []string{root, clone})...); err != nil {
		return nil, err
	}
	if tags, err = release(ctx, clone, version, check); err != nil {
		return nil, fmt.Errorf("%w\nrelease: there is no tag, and nothing has changed here. Commit what mends it, and release again", err)
	}
	if dry {
		return tags, nil
	}
	return tags, bring(context.WithoutCancel(ctx), root, clone, commit, branch, tags)
}

// refuse returns an error if a version cannot be released of the checked-out commit.
func refuse(ctx context.Context, root, version string, dry bool) error {
	if !versions.MatchString(version) {
		return fmt.Errorf("release: %q is no version such as v0.2.0. There are no pre-releases; from v2 on the modules' paths would have to change", version)
	}
	if out, err := run(ctx, root, "git", "status", "--porcelain"); err != nil || len(out) > 0 {
		return errors.Join(fmt.Errorf("release: commit or remove first:\n%s", out), err)
	}
	if _, err := run(ctx, root, "git", "var", "GIT_COMMITTER_IDENT"); err != nil {
		return err // now, and not after all checks
	}
	last, err := base(ctx, root, version)
	if err != nil {
		return err
	}
	if err := inLine(ctx, root, version, last, dry); err != nil {
		return err
	}
	all, err := Modules(ctx, root)
	if err != nil {
		return err
	}
	for _, m := range all {
		if out, err := run(ctx, root, "git", "tag", "--list", m.Tag(version)); err != nil || m.Released && len(out) > 0 {
			return errors.Join(fmt.Errorf("release: there is a tag %s", m.Tag(version)), err)
		}
	}
	return nil
}

var releasedSection = regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\]`)

// inLine refuses a version where the checked-out commit does not follow the last release: another
// branch, or a clone without its tags, in which there would be nothing to compare with.
func inLine(ctx context.Context, root, version, last string, dry bool) error {
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	tags, err := run(ctx, root, "git", "tag", "--list", "v*")
	if err != nil {
		return err
	}
	for _, found := range releasedSection.FindAllSubmatch(text, -1) {
		if tag := "v" + string(found[1]); !slices.Contains(strings.Fields(string(tags)), tag) {
			return fmt.Errorf("release: CHANGELOG.md has %s, and there is no such tag here: git fetch --tags", tag)
		}
	}
	merged, err := run(ctx, root, "git", "tag", "--list", "v*", "--merged", "HEAD")
	if err != nil {
		return err
	}
	if before, err := baseOf(strings.Fields(string(merged)), ""); err != nil || before != last {
		return errors.Join(fmt.Errorf("release: %s comes after %q, and what is checked out after %q: check out the branch of the former", version, last, before), err)
	}
	newest, err := base(ctx, root, "")
	if err != nil || dry {
		return err
	}
	if branch, err := run(ctx, root, "git", "symbolic-ref", "-q", "--short", "HEAD"); err != nil {
		return errors.New("release: no branch is checked out")
	} else if branch := strings.TrimSpace(string(branch)); last == newest && branch != "main" {
		return fmt.Errorf("release: %s is above all before it, and so made on main: %s is checked out. DRY=1 may be anywhere", version, branch)
	}
	return nil
}

// head returns the commit and the branch that are checked out.
func head(ctx context.Context, root string) (commit, branch string, err error) {
	out, err := run(ctx, root, "git", "rev-parse", "HEAD", "--symbolic-full-name", "HEAD")
	commit, branch, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	return commit, branch, err
}

// identity returns options that give a clone the repository's own settings for commits and tags.
func identity(ctx context.Context, root string) (args []string, err error) {
	out, err := run(ctx, root, "git", "config", "--local", "--null", "--list")
	for entry := range strings.SplitSeq(string(out), "\x00") {
		key, value, _ := strings.Cut(entry, "\n")
		switch section, _, _ := strings.Cut(key, "."); section {
		case "user", "author", "committer", "commit", "tag", "gpg":
			args = append(args, "-c", key+"="+value)
		}
	}
	return args, err
}

// bring moves the branch to the release, by one commit, and takes over all tags or none.
func bring(ctx context.Context, root, clone, commit, branch string, tags []string) error {
	if now, on, err := head(ctx, root); err != nil || now != commit || on != branch {
		return errors.Join(fmt.Errorf("release: %s is checked out, and the release was begun on %s: it is not taken over", now+" "+on, commit+" "+branch), err)
	}
	if _, err := run(ctx, root, "git", "fetch", "-q", "--no-tags", clone, "HEAD"); err != nil {
		return err
	}
	if _, err := run(ctx, root, "git", "merge", "-q", "--ff-only", "FETCH_HEAD"); err != nil {
		return err
	}
	args := []string{"fetch", "-q", "--no-tags", "--atomic", clone}
	for _, tag := range tags {
		args = append(args, "refs/tags/"+tag+":refs/tags/"+tag)
	}
	if _, err := run(ctx, root, "git", args...); err != nil {
		_, undone := run(ctx, root, "git", "reset", "-q", "--keep", commit)
		return errors.Join(err, undone)
	}
	return nil
}
