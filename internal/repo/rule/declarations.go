package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// declaration is a function, method, type, variable or constant.
type declaration struct {
	name    string // that of a method begins with a dot
	of      string // the type of a method
	comment string
	begins  int // the line of the comment, or as line
	line    int
	ends    int
	names   []string // in it, those after a dot with the dot
}

// isRun matches the names of functions that go test runs.
var isRun = regexp.MustCompile(`^(?:Test|Fuzz|Benchmark|Example)`)

// declarations returns the declarations of a file. It parses the file, once.
func (r *repository) declarations(file string) []declaration {
	if all, ok := r.declared[file]; ok {
		return all
	}
	var all []declaration
	set := token.NewFileSet()
	line := func(p token.Pos) int { return set.Position(p).Line }
	add := func(name, of string, comment *ast.CommentGroup, n ast.Node) {
		d := declaration{name: name, of: of, comment: comment.Text(), begins: line(n.Pos()), line: line(n.Pos()), ends: line(n.End()), names: names(n)}
		if comment != nil {
			d.begins = line(comment.Pos())
		}
		all = append(all, d)
	}
	f, err := parser.ParseFile(set, file, r.text[file], parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		f = &ast.File{} // the compiler tells
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name, of := d.Name.Name, ""
			if d.Recv != nil {
				name, of = "."+name, receiver(d.Recv.List[0].Type)
			}
			add(name, of, d.Doc, d)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					for _, n := range s.Names {
						add(n.Name, "", cmp.Or(s.Doc, d.Doc), s)
					}
				case *ast.TypeSpec:
					add(s.Name.Name, "", cmp.Or(s.Doc, d.Doc), s)
				}
			}
		}
	}
	r.declared[file] = all
	return all
}

// receiver returns the name of a method's type.
func receiver(x ast.Expr) string {
	name := ""
	ast.Inspect(x, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" { // a parameter of the type comes after it
			name = id.Name
		}
		return true
	})
	return name
}

// names returns the names in a declaration, but those of a literal's fields.
func names(d ast.Node) []string {
	all := make(map[string]bool)
	var visit func(n ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl: // a method does not use its type
			ast.Inspect(n.Type, visit)
			if n.Body != nil {
				ast.Inspect(n.Body, visit)
			}
			return false
		case *ast.Ident:
			all[n.Name] = true
		case *ast.CallExpr: // a method is called or passed, else it is a field of that name
			for _, x := range append([]ast.Expr{n.Fun}, n.Args...) {
				if x, ok := x.(*ast.SelectorExpr); ok {
					all["."+x.Sel.Name] = true
				}
			}
		case *ast.SelectorExpr:
			ast.Inspect(n.X, visit)
			return false
		case *ast.KeyValueExpr:
			if _, ok := n.Key.(*ast.Ident); ok {
				ast.Inspect(n.Value, visit)
				return false
			}
		}
		return true
	}
	ast.Inspect(d, visit)
	return slices.Collect(maps.Keys(all))
}

// at returns the declaration that a line is in, or the next one, or else the last one.
func (r *repository) at(m mention) (d declaration) {
	for _, d = range r.declarations(m.file) {
		if m.line <= d.ends {
			break
		}
	}
	return d
}

// testsOf returns up to three tests that use a declaration of a test's file, also by way of others.
// It adds how many more there are. Those of that file come first. Names are compared, so it takes
// methods of one name for one, and a local variable for a function of its name. So of tests that
// seem to use a method it takes those that use its type as well, by functions, if there are any.
func (r *repository) testsOf(used declaration, file string) string {
	users := r.usersIn(path.Dir(file))
	seen := reach(used.name, users, func(string) bool { return true })
	if used.of != "" {
		typed := reach(used.of, users, func(name string) bool { return !strings.HasPrefix(name, ".") })
		maps.DeleteFunc(typed, func(name string, _ bool) bool { return !seen[name] || !isRun.MatchString(name) || name == "TestMain" })
		if len(typed) > 0 {
			seen = typed
		}
	}
	var tests []string
	add := func(names []string) {
		slices.Sort(names)
		for _, name := range names {
			if isRun.MatchString(name) && seen[name] && !slices.Contains(tests, name) {
				tests = append(tests, name)
			}
		}
	}
	var here []string
	for _, d := range r.declarations(file) {
		here = append(here, d.name)
	}
	add(here)
	add(slices.Collect(maps.Keys(seen)))
	if len(tests) > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(tests[:3], ", "), len(tests)-3)
	}
	return strings.Join(tests, ", ")
}

// reach returns the declarations that use a name, also by way of others that by says.
func reach(name string, users map[string][]string, by func(name string) bool) map[string]bool {
	seen := map[string]bool{name: true}
	for next := []string{name}; len(next) > 0; next = next[1:] {
		for _, user := range users[next[0]] {
			if !seen[user] && by(user) {
				seen[user] = true
				next = append(next, user)
			}
		}
	}
	return seen
}

// usersIn returns, for each name in the tests of a directory, their declarations that use it.
func (r *repository) usersIn(dir string) map[string][]string {
	if all, ok := r.users[dir]; ok {
		return all
	}
	all := make(map[string][]string)
	for _, file := range r.in(dir + "/*_test.go") {
		for _, d := range r.declarations(file) {
			for _, name := range d.names {
				all[name] = append(all[name], d.name)
			}
		}
	}
	r.users[dir] = all
	return all
}
