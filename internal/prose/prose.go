// Package prose measures how comments are written: whether they name the actor, and how long their
// lines are.
package prose

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/repo"
)

// Width is the number of columns that a comment's line has at most, a tab being one.
const Width = 100

// Style is the style of a package's comments, in counts.
type Style struct {
	Words   int // in all
	Unnamed int // words that stand in the place of the actor's name: those of unnamed
	Whose   int // of these, "whose", which is of things as well
	Lines   int // in all
	Long    int // lines with more than Width columns
}

// PerMille returns how many of 1,000 words are unnamed actors, rounded up.
func (s Style) PerMille() int { return ceil(1000*s.Unnamed, s.Words) }

// Percent returns how many of 100 lines are long, rounded up.
func (s Style) Percent() int { return ceil(100*s.Long, s.Lines) }

func ceil(a, b int) int { return (a + max(b, 1) - 1) / max(b, 1) }

// unnamed are words that stand in the place of an actor's name.
var unnamed = map[string]bool{"who": true, "whoever": true, "whom": true, "whose": true, "nobody": true, "somebody": true, "anybody": true}

// count adds a text's words.
func (s *Style) count(text string) {
	for w := range strings.FieldsFuncSeq(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) && r != '\'' }) {
		if w = strings.Trim(w, "'"); w == "" {
			continue
		}
		s.Words++
		w, _, _ = strings.Cut(strings.ToLower(w), "'")
		if unnamed[w] {
			s.Unnamed++
		}
		if w == "whose" {
			s.Whose++
		}
	}
}

// Packages returns the style of each directory with Go code below root, tests left out.
func Packages(root string) (map[string]Style, error) {
	all := make(map[string]Style)
	err := repo.GoFiles(root, func(file string) error {
		if strings.HasSuffix(file, "_test.go") {
			return nil
		}
		dir, err := relative(root, file)
		if err != nil {
			return err
		}
		s, err := add(all[dir], file)
		all[dir] = s
		return err
	})
	return all, err
}

// relative returns the directory of a file, from root.
func relative(root, file string) (string, error) {
	dir, err := filepath.Rel(root, filepath.Dir(file))
	return filepath.ToSlash(dir), err
}

// Rooms returns the style of each directory of the root, with all that is below it: comments, of
// tests as well, and documents. That of the files of the root is ".".
func Rooms(root string) (map[string]Style, error) {
	all := make(map[string]Style)
	room := func(file string) (string, error) {
		rel, err := filepath.Rel(root, file)
		top, _, below := strings.Cut(filepath.ToSlash(rel), "/")
		if !below {
			top = "."
		}
		return top, err
	}
	err := repo.GoFiles(root, func(file string) error {
		top, err := room(file)
		if err == nil {
			all[top], err = add(all[top], file)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && file != root && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if err != nil || filepath.Ext(file) != ".md" || filepath.Base(file) == "CHANGELOG.md" {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		top, err := room(file)
		s := all[top]
		s.count(string(text))
		all[top] = s
		return err
	})
}

// Documents returns the style of each document of the root and of docs, without the changelog,
// which is history. Lines are not counted: those of tables cannot be wrapped.
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
			var s Style
			s.count(string(text))
			all[filepath.ToSlash(name)] = s
		}
	}
	return all, nil
}

// add adds the counts of a file's comments.
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
			s.count(c.Text)
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
