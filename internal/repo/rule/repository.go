package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/repo"
)

const (
	transcriptsDir = "internal/lease/leasetest/testdata"
	storiesDir     = "internal/model/testdata/stories"
)

// repository is the files for the pages. Files are named from the root, with slashes.
type repository struct {
	files    []string // in order
	text     map[string]string
	declared map[string][]declaration       // of the files that were parsed
	users    map[string]map[string][]string // by directory and name
}

// read reads the Go files, the documents that have rules, the transcripts and the stories. It leaves
// out this command, which names all rules.
func read(root string) (*repository, error) {
	r := &repository{text: make(map[string]string), declared: make(map[string][]declaration), users: make(map[string]map[string][]string)}
	add := func(file string) error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		if name = filepath.ToSlash(name); !strings.HasPrefix(name, "internal/repo/rule/") {
			r.files = append(r.files, name)
			r.text[name] = string(text)
		}
		return nil
	}
	if err := repo.GoFiles(root, add); err != nil {
		return nil, err
	}
	patterns := []string{transcriptsDir + "/*.txt", storiesDir + "/*.txt"}
	for _, k := range kinds {
		patterns = append(patterns, k.document, k.table)
	}
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if err := add(file); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(r.files)
	r.files = slices.Compact(r.files) // a document is also a table
	return r, nil
}

// in returns the files that match a pattern of package path.
func (r *repository) in(pattern string) (files []string) {
	for _, file := range r.files {
		if ok, err := path.Match(pattern, file); ok && err == nil {
			files = append(files, file)
		}
	}
	return files
}

func isTest(file string) bool { return strings.HasSuffix(file, "_test.go") }

// mention is a line that names a rule.
type mention struct {
	file string
	line int
	text string
}

func (m mention) String() string { return fmt.Sprintf("%s:%d:%s", m.file, m.line, m.text) }

// lines returns the lines of the files that match. Each has the hint: to look for that is quick.
func (r *repository) lines(files []string, hint string, match *regexp.Regexp) (all []mention) {
	for _, file := range files {
		if !strings.Contains(r.text[file], hint) {
			continue
		}
		n := 0
		for line := range strings.Lines(r.text[file]) {
			n++
			if strings.Contains(line, hint) && match.MatchString(line) {
				all = append(all, mention{file, n, strings.TrimSuffix(line, "\n")})
			}
		}
	}
	return all
}
