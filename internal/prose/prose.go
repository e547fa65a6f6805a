// Package prose measures how comments are written: whether they name the actor, and how long their
// lines are.
package prose

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Width is the number of columns that a comment's line has at most, a tab being one.
const Width = 100

// Style is what the comments of a package are like.
type Style struct {
	Words   int // in all
	Unnamed int // words that stand in the place of the actor's name: those of unnamed
	Lines   int // in all
	Long    int // lines with more than Width columns
}

// PerMille returns how many of 1,000 words are unnamed actors, rounded up.
func (s Style) PerMille() int { return ceil(1000*s.Unnamed, s.Words) }

// Percent returns how many of 100 lines are long, rounded up.
func (s Style) Percent() int { return ceil(100*s.Long, s.Lines) }

func ceil(a, b int) int { return (a + max(b, 1) - 1) / max(b, 1) }

var (
	word    = regexp.MustCompile(`[\pL\pN]+(?:'\pL+)?`)
	unnamed = regexp.MustCompile(`(?i)\b(?:who|whoever|whom|whose|nobody|somebody)\b`)
)

// Packages returns the style of each directory with Go code below root, tests left out.
func Packages(root string) (map[string]Style, error) {
	all := make(map[string]Style)
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		dir = filepath.ToSlash(dir)
		s, err := add(all[dir], file)
		all[dir] = s
		return err
	})
	return all, err
}

// Documents returns the style of each document of the root and of docs, without the changelog, which is
// history. Lines are not counted: those of tables cannot be wrapped.
func Documents(root string) (map[string]Style, error) {
	all := make(map[string]Style)
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if filepath.Base(file) == "CHANGELOG.md" {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			name, err := filepath.Rel(root, file)
			if err != nil {
				return nil, err
			}
			all[filepath.ToSlash(name)] = Style{Words: len(word.FindAll(text, -1)), Unnamed: len(unnamed.FindAll(text, -1))}
		}
	}
	return all, nil
}

// add counts what a file's comments have.
func add(s Style, file string) (Style, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, parser.ParseComments)
	if err != nil {
		return s, err
	}
	for _, g := range f.Comments {
		for _, c := range g.List {
			if strings.HasPrefix(c.Text, "//go:") {
				continue
			}
			s.Words += len(word.FindAllString(c.Text, -1))
			s.Unnamed += len(unnamed.FindAllString(c.Text, -1))
			at := fset.Position(c.Pos()).Column - 1
			for line := range strings.SplitSeq(c.Text, "\n") {
				s.Lines++
				if at+utf8.RuneCountInString(line) > Width {
					s.Long++
				}
				at = 0
			}
		}
	}
	return s, nil
}
