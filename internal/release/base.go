package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// numbers returns those of a version.
func numbers(version string) (n [3]int) {
	for i, text := range strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3) {
		n[i], _ = strconv.Atoi(text) // versions has matched it
	}
	return n
}

func ascending(a, b string) int {
	x, y := numbers(a), numbers(b)
	return slices.Compare(x[:], y[:])
}

// base returns the tag that a version is compared with, the last one below it; empty: there is
// none. A version is above all tags, or a further one of an older line: v0.1.3 after v0.1.2, also
// if there is v0.2.0. The version may be empty: then it is the last tag.
func base(ctx context.Context, root, version string) (string, error) {
	out, err := run(ctx, root, "git", "tag", "--list", "v*")
	if err != nil {
		return "", err
	}
	return baseOf(strings.Fields(string(out)), version)
}

func baseOf(tags []string, version string) (string, error) {
	tags = slices.DeleteFunc(slices.Clone(tags), func(tag string) bool { return !versions.MatchString(tag) })
	slices.SortFunc(tags, ascending)
	if len(tags) == 0 {
		return "", nil
	}
	last := tags[len(tags)-1]
	if version == "" || ascending(version, last) > 0 {
		return last, nil
	}
	v := numbers(version)
	var line []string
	for _, tag := range tags {
		if n := numbers(tag); n[0] == v[0] && n[1] == v[1] {
			line = append(line, tag)
		}
	}
	if len(line) == 0 || ascending(version, line[len(line)-1]) <= 0 {
		return "", fmt.Errorf("release: %s is neither above %s nor the next one of an older line", version, last)
	}
	return line[len(line)-1], nil
}

// permits refuses a version that breaks the promises of the one before. Before v1 a new second
// number may.
func permits(before, version string, incompatible bool) error {
	was, is := numbers(before), numbers(version)
	switch {
	case !incompatible || before == "" || is[0] > was[0]:
		return nil
	case is[0] > 0:
		return fmt.Errorf("release: %s breaks APIs of %s (above): keep them beside the new ones; from v1 on nothing is taken away", version, before)
	case is[1] == was[1]:
		return fmt.Errorf("release: %s breaks APIs of %s (above): raise the second number", version, before)
	}
	return nil
}

// beside builds the modules of the last tag with this root in the place of theirs: a program that
// has raised the root alone has them so. It reports whether all compile: the root's internal
// packages, which they use, are in no API. The modules are in a clone, which it changes.
func beside(ctx context.Context, old, root string, before []Module) (compile bool, err error) {
	compile = true
	for _, m := range before {
		if !m.Released || m.Dir == "." {
			continue
		}
		dir := filepath.Join(old, m.Dir)
		if _, err := run(ctx, dir, "go", "mod", "edit", "-replace="+Path+"="+root); err != nil {
			return false, err
		}
		if _, err := run(ctx, dir, "go", "build", "-mod=mod", "-o", os.DevNull, "./..."); err != nil {
			fmt.Printf("%s does not compile beside this root:\n%v\n", m.Path, err)
			compile = false
		}
	}
	return compile, nil
}
