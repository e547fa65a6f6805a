package coord_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// starts returns the places of a file that start goroutines, as "function means": go statements,
// and places that call or hand on methods Go, AfterFunc and background.
func starts(file *ast.File) (all []string) {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			t := f.Recv.List[0].Type
			if x, ok := t.(*ast.StarExpr); ok {
				t = x.X
			}
			if x, ok := t.(*ast.IndexExpr); ok {
				t = x.X
			}
			name = t.(*ast.Ident).Name + "." + name
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.GoStmt:
				all = append(all, name+" go")
			case *ast.SelectorExpr:
				switch x.Sel.Name {
				case "Go":
					on := ""
					switch y := x.X.(type) {
					case *ast.Ident:
						on = y.Name
					case *ast.SelectorExpr:
						on = y.Sel.Name
					}
					all = append(all, name+" "+on+".Go")
				case "AfterFunc":
					all = append(all, name+" AfterFunc")
				case "background":
					all = append(all, name+" background")
				}
			}
			return true
		})
	}
	return all
}

var row = regexp.MustCompile(`(?m)^//\t\| (\w\S+) +\| (\w\S*) +\|`)

// TestGoroutines_AreAllInTheList compares the tables of goroutines.go with the source.
func TestGoroutines_AreAllInTheList(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var started []string
	fset := token.NewFileSet()
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, f.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		started = append(started, starts(file)...)
	}
	text, err := os.ReadFile("goroutines.go")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		if m[1] != "function" {
			listed = append(listed, m[1]+" "+m[2])
		}
	}
	slices.Sort(started)
	slices.Sort(listed)
	if !slices.Equal(started, listed) {
		t.Errorf("the source starts\n%s\nand the list has\n%s", strings.Join(missing(started, listed), "\n"), strings.Join(missing(listed, started), "\n"))
	}
}

// missing returns the entries that a has more often than b. Both are sorted.
func missing(a, b []string) (only []string) {
	b = slices.Clone(b)
	for _, x := range a {
		if i := slices.Index(b, x); i >= 0 {
			b = slices.Delete(b, i, i+1)
		} else {
			only = append(only, x)
		}
	}
	return only
}
