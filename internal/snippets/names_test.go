package snippets

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/internal/repo"
)

var (
	span   = regexp.MustCompile("`([^`\n]+)`")
	dotted = regexp.MustCompile(`^[a-zA-Z]\w*(\.[a-zA-Z]\w*)+$`)
	path   = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)+\.(go|md|lua|txt)$`)
	target = regexp.MustCompile(`^make ([a-z-]+)`)
	folder = regexp.MustCompile(`\./[\w/-]+`)
	meter  = regexp.MustCompile(`^"(holdfast(?:\.[a-z]+)+)"$`)
	rule   = regexp.MustCompile(`(?m)^\| (\d+)\. [^|]+\|([^|]+)\|([^|]+)\|$`)
	kept   = regexp.MustCompile(`(?m)^\| (I[1-8]) \|([^|]+)\|$`)
	tested = regexp.MustCompile(`(?m)^\| (G(?:[1-9]|1[01])|E[1-8]) \|([^|]+)\|([^|]+)\|$`)
)

// declared returns the names that the repository declares: "package", "package.Name",
// "package.Type.Member" and "Type.Member", and the names of metrics, spans and attributes, which
// are literals.
func declared(t *testing.T) map[string]bool {
	t.Helper()
	all, err := declarations()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var declarations = sync.OnceValues(func() (map[string]bool, error) {
	dir, err := repo.Root()
	if err != nil {
		return nil, err
	}
	all := make(map[string]bool)
	return all, repo.GoFiles(dir, func(file string) error {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		add(all, f)
		if strings.HasSuffix(file, "_test.go") {
			return nil
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok {
				if m := meter.FindStringSubmatch(l.Value); m != nil {
					all[m[1]] = true
				}
			}
			return true
		})
		return nil
	})
})

func add(all map[string]bool, f *ast.File) {
	pkg := f.Name.Name
	member := func(of ast.Expr, name string) {
		if star, ok := of.(*ast.StarExpr); ok {
			of = star.X
		}
		if generic, ok := of.(*ast.IndexExpr); ok {
			of = generic.X
		}
		if id, ok := of.(*ast.Ident); ok {
			all[id.Name+"."+name], all[pkg+"."+id.Name+"."+name] = true, true
		}
	}
	all[pkg] = true
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				member(d.Recv.List[0].Type, d.Name.Name)
				continue
			}
			all[pkg+"."+d.Name.Name] = true
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					for _, n := range s.Names {
						all[pkg+"."+n.Name] = true
					}
				case *ast.TypeSpec:
					all[pkg+"."+s.Name.Name], all["type "+s.Name.Name] = true, true
					var list *ast.FieldList
					switch x := s.Type.(type) {
					case *ast.StructType:
						list = x.Fields
					case *ast.InterfaceType:
						list = x.Methods
					default:
						continue
					}
					for _, field := range list.List {
						for _, n := range field.Names {
							member(s.Name, n.Name)
						}
						if len(field.Names) == 0 { // embedded: its members are not known here
							all["embeds "+s.Name.Name] = true
						}
					}
				}
			}
		}
	}
}

// others are names of libraries, of a variable and of a proposal that look like the repository's.
var others = []string{"goose.WithLocker", "Server.RegisterOnShutdown", "Server.ReadTimeout", "client.Close", "Cluster.Quorum"}

// missing reports whether a name in a document should be one of the repository's, and is not.
func missing(all map[string]bool, name string) bool {
	if all[name] || slices.Contains(others, name) {
		return false
	}
	first, rest, _ := strings.Cut(name, ".")
	last := name[strings.LastIndexByte(name, '.')+1:]
	switch {
	case slices.Contains([]string{"md", "go", "svg", "json", "txt", "lua", "html", "yaml", "mod", "sum", "work", "com", "org"}, last):
		return false // a file, or a host
	case all[first]: // a package: of a type that embeds others, the type is looked at
		typ, _, deep := strings.Cut(rest, ".")
		return !deep || !all[first+"."+typ] || !all["embeds "+typ]
	case all["type "+first]:
		return !all["embeds "+first]
	}
	return false
}

// Names in documents exist: functions, types and fields of the repository, files, and commands.
func TestDocuments_NameWhatExists(t *testing.T) {
	dir := root(t)
	all := declared(t)
	makefile, err := os.ReadFile(filepath.Join(dir, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, pattern := range []string{"README.md", "DESIGN.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md", "docs/*.md", "docs/*/*.md"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range span.FindAllStringSubmatch(string(text), -1) {
				name := strings.TrimSuffix(m[1], "()")
				there := func(what string) bool {
					checked++
					_, err := os.Stat(filepath.Join(dir, what))
					return err == nil
				}
				switch {
				case target.MatchString(name):
					checked++
					if goal := target.FindStringSubmatch(name)[1]; !strings.Contains(string(makefile), "\n"+goal+":") {
						t.Errorf("%s: there is no %q in the Makefile", filepath.Base(file), goal)
					}
				case strings.HasPrefix(name, "go test"), strings.HasPrefix(name, "go run"):
					for _, f := range folder.FindAllString(name, -1) {
						if !there(strings.TrimSuffix(f, "/")) {
							t.Errorf("%s: %s: there is no %s", filepath.Base(file), name, f)
						}
					}
				case path.MatchString(name):
					if !there(name) {
						t.Errorf("%s: there is no file %s", filepath.Base(file), name)
					}
				case dotted.MatchString(name):
					checked++
					if missing(all, name) {
						t.Errorf("%s: there is no %s", filepath.Base(file), name)
					}
				}
			}
		}
	}
	if checked < 300 {
		t.Errorf("%d names", checked)
	}
}

// Each rule has a row in DESIGN.md, with functions and a transcript that exist, and each invariant one with functions.
func TestDesign_IndexOfRules(t *testing.T) {
	dir := root(t)
	text, err := os.ReadFile(filepath.Join(dir, "DESIGN.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := declared(t)
	invariants := kept.FindAllStringSubmatch(string(text), -1)
	if len(invariants) != 8 {
		t.Errorf("%d rows, want one for each of 8 invariants", len(invariants))
	}
	for _, row := range invariants {
		names := span.FindAllStringSubmatch(row[2], -1)
		for _, name := range names {
			if !all[name[1]] {
				t.Errorf("%s: there is no %s", row[1], name[1])
			}
		}
		if len(names) == 0 {
			t.Errorf("%s: no function", row[1])
		}
	}
	rows := rule.FindAllStringSubmatch(string(text), -1)
	if len(rows) != 17 {
		t.Fatalf("%d rows, want one for each of 17 rules", len(rows))
	}
	for _, row := range rows {
		names := span.FindAllStringSubmatch(row[2], -1)
		if len(names) == 0 && row[1] != "8" {
			t.Errorf("rule %s: no function", row[1])
		}
		for _, name := range names {
			if !all[name[1]] || strings.Count(name[1], ".") == 0 {
				t.Errorf("rule %s: there is no %s", row[1], name[1])
			}
		}
		files := span.FindAllStringSubmatch(row[3], -1)
		if len(files) == 0 && row[1] != "8" {
			t.Errorf("rule %s: no transcript", row[1])
		}
		for _, name := range files {
			if _, err := os.Stat(filepath.Join(dir, "internal/lease/leasetest/testdata", name[1])); err != nil {
				t.Errorf("rule %s: %v", row[1], err)
			}
		}
	}
}

// Each rule of takeover by guardians, and of an early end of Grace, has a row in its document, with functions and tests that exist.
func TestDocuments_IndexesOfRules(t *testing.T) {
	dir := root(t)
	all := declared(t)
	tests := make(map[string]bool)
	for name := range all {
		if _, f, ok := strings.Cut(name, "."); ok && strings.HasPrefix(f, "Test") {
			tests[f] = true
		}
	}
	for kind, file := range map[string]string{"G": "takeover.md", "E": "adr/0023-grace-ends-by-rounds.md"} {
		count := map[string]int{"G": 11, "E": 8}[kind]
		text, err := os.ReadFile(filepath.Join(dir, "docs", file))
		if err != nil {
			t.Fatal(err)
		}
		rows := tested.FindAllStringSubmatch(string(text), -1)
		if len(rows) != count {
			t.Errorf("%s: %d rows, want one for each of %d rules", file, len(rows), count)
		}
		for i, row := range rows {
			if want := fmt.Sprint(kind, i+1); row[1] != want {
				t.Errorf("%s: row %s, want %s", file, row[1], want)
			}
			for column, known := range map[int]map[string]bool{2: all, 3: tests} {
				names := span.FindAllStringSubmatch(row[column], -1)
				if len(names) == 0 {
					t.Errorf("%s: %s: nothing in column %d", file, row[1], column)
				}
				for _, name := range names {
					if !known[name[1]] {
						t.Errorf("%s: %s: there is no %s", file, row[1], name[1])
					}
				}
			}
		}
	}
}

// A test names each rule, each invariant, each rule of takeover by guardians, and each of an early end of Grace: `make rule` shows it.
func TestRules_AreNamedByTests(t *testing.T) {
	dir := root(t)
	all := []string{filepath.Join(dir, "internal", "snippets"), filepath.Join(dir, "internal", "repo", "rule")} // these name all
	var tests strings.Builder
	err := repo.GoFiles(dir, func(file string) error {
		if !strings.HasSuffix(file, "_test.go") || slices.ContainsFunc(all, func(dir string) bool { return strings.HasPrefix(file, dir) }) {
			return nil
		}
		text, err := os.ReadFile(file)
		for line := range strings.Lines(string(text)) { // the patterns are slow
			if strings.ContainsAny(line, "123456789") && (strings.Contains(line, "ule") || strings.ContainsAny(line, "IGE")) {
				tests.WriteString(line)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 17 {
		names := fmt.Sprintf(`[Rr]ules? (\d+(,| and| to) )*%d\b`, n+1) // as in internal/repo/rule
		if !regexp.MustCompile(names).MatchString(tests.String()) {
			t.Errorf("no test names rule %d", n+1)
		}
	}
	for kind, count := range map[string]int{"I": 8, "G": 11, "E": 8} {
		for n := range count {
			name := fmt.Sprintf("%s%d", kind, n+1)
			if !regexp.MustCompile(`\b` + name + `\b`).MatchString(tests.String()) {
				t.Errorf("no test names %s", name)
			}
		}
	}
}

func TestMissing(t *testing.T) {
	all := declared(t)
	for name, want := range map[string]bool{
		"lease.Partition.freeze": false, "lease.Partition.melt": true, "coord.Options": false, "coord.Melt": true,
		"Partition.freeze": false, "Partition.melt": true, "http.Server": false, "coord.releaser.done": false, "stock.md": false,
		"holdfast.lock.wait.duration": false, "holdfast.lock.weight": true,
	} {
		if got := missing(all, name); got != want {
			t.Errorf("%s: got %t, want %t", name, got, want)
		}
	}
}
