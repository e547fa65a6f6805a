package snippets

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The life of a key in DESIGN.md names files that exist, each once, and they have the functions that it names: nothing sends a reader to a
// file that is not in the table.
func TestDesign_TheLifeOfAKey(t *testing.T) {
	dir := root(t)
	text, err := os.ReadFile(filepath.Join(dir, "DESIGN.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, life, _ := strings.Cut(string(text), "\n## The life of a key, call by call\n")
	life, _, _ = strings.Cut(life, "\n## ")
	where := []string{"coord", "internal/lease", ""} // the table's columns
	functions := make(map[string]bool)
	var files []string
	for _, row := range regexp.MustCompile(`(?m)^\| [^|-][^|]*\|([^|]*)\|([^|]*)\|([^|]*)\|$`).FindAllStringSubmatch(life, -1)[1:] {
		for i, cell := range row[1:] {
			for _, m := range span.FindAllStringSubmatch(cell, -1) {
				file := filepath.Join(where[i], m[1])
				if slices.Contains(files, file) {
					t.Errorf("%s is there twice", file)
				}
				files = append(files, file)
				f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, file), nil, parser.SkipObjectResolution)
				if err != nil {
					t.Error(err)
					continue
				}
				for _, d := range f.Decls {
					if d, ok := d.(*ast.FuncDecl); ok && d.Recv != nil {
						all := make(map[string]bool)
						add(all, &ast.File{Name: f.Name, Decls: []ast.Decl{d}})
						for name := range all {
							functions[name] = true
						}
					}
				}
			}
		}
	}
	named := 0
	for _, m := range span.FindAllStringSubmatch(life, -1) {
		if strings.Count(m[1], ".") != 2 {
			continue
		}
		if named++; !functions[m[1]] {
			t.Errorf("%s is in no file of the table", m[1])
		}
	}
	if len(files) < 40 || named < 50 {
		t.Errorf("%d files, %d functions", len(files), named)
	}
}
