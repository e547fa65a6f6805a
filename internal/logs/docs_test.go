package logs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// packages are those whose records an operator gets.
var packages = []string{"adapters/cron", "coord", "election", "fallback", "gossip", "handoff", "idempotent", "middleware", "peer", "periodic", "ring", "singleflight", "tokens"}

// levels are the names of the methods that log, and of peer's.
var levels = map[string]string{"Debug": "Debug", "Info": "Info", "Warn": "Warn", "Error": "Error", "warn": "Warn"}

// passing are functions that pass on a message of their callers'.
var passing = map[string]bool{"limitedLog.warn": true}

// record is the level and the attributes of a message, in the code or the table.
type record struct{ level, attrs string }

func TestDocs_TableOfRecordsIsThatOfTheCode(t *testing.T) {
	code, table := make(map[string]record), documented(t)
	for _, p := range packages {
		maps.Copy(code, logged(t, filepath.Join("../..", p)))
	}
	if len(code) < 20 {
		t.Fatalf("%d messages found in the code", len(code))
	}
	for text, c := range code {
		switch d, ok := table[text]; {
		case !ok:
			t.Errorf("docs/logs.md lacks %q, %s: %s", text, c.level, c.attrs)
		case c != d:
			t.Errorf("docs/logs.md says of %q %s: %s, the code %s: %s", text, d.level, d.attrs, c.level, c.attrs)
		}
		if !strings.HasPrefix(text, "holdfast: ") {
			t.Errorf("the message %q does not begin with the module's name", text)
		}
	}
	for text := range table {
		if _, ok := code[text]; !ok {
			t.Errorf("docs/logs.md has %q, which the code does not log", text)
		}
	}
}

// documented reads the table.
func documented(t *testing.T) map[string]record {
	t.Helper()
	text, err := os.ReadFile("../../docs/logs.md")
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]record)
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(f) != 5 || strings.HasPrefix(f[0], " ---") || f[0] == " message " {
			continue
		}
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}
		if _, twice := found[f[0]]; twice || f[3] == "" || f[4] == "" {
			t.Errorf("docs/logs.md: %q is there twice, or does not say what it means and what to do", f[0])
		}
		found[f[0]] = record{f[1], f[2]}
	}
	return found
}

// logged finds the calls that log in the files of a folder. A call with a message that is not a
// constant is an error.
func logged(t *testing.T, dir string) map[string]record {
	t.Helper()
	found := make(map[string]record)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (strings.HasSuffix(d.Name(), "test") || d.Name() == "testdata" || d.Name() == "matrix") {
			return fs.SkipDir // of tests
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && passing[nameOf(fn)] {
				continue
			}
			ast.Inspect(decl, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				text, r, bad := inspect(call)
				if bad != "" {
					t.Errorf("%v: %s", files.Position(call.Pos()), bad)
				}
				if text != "" {
					if old, ok := found[text]; ok && old != r {
						t.Errorf("%v: %q is logged in two ways", files.Position(call.Pos()), text)
					}
					found[text] = r
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// nameOf returns a function's name, with its receiver's.
func nameOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	typ := fn.Recv.List[0].Type
	if p, ok := typ.(*ast.StarExpr); ok {
		typ = p.X
	}
	if id, ok := typ.(*ast.Ident); ok {
		return id.Name + "." + fn.Name.Name
	}
	return fn.Name.Name
}

// inspect returns the message and the record that a call logs, if it does.
func inspect(call *ast.CallExpr) (text string, r record, bad string) {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return "", r, ""
	}
	if id, ok := sel.X.(*ast.Ident); ok && id.Name == "status" {
		return "", r, "" // status.Error of gRPC
	}
	name, args := sel.Sel.Name, call.Args
	if other, ok := args[len(args)-1].(*ast.SelectorExpr); ok && name == "warn" && other.Sel.Name == "logger" {
		return "", r, "" // a function that gets a logger
	}
	if name == "Log" || name == "LogAttrs" || strings.HasSuffix(name, "Context") && levels[strings.TrimSuffix(name, "Context")] != "" {
		return "", r, "a record without its level in the method's name: use Debug, Info, Warn or Error"
	}
	r.level = levels[name]
	if r.level == "" {
		return "", r, ""
	}
	if id, ok := args[0].(*ast.Ident); ok && id.Name == "ctx" {
		return "", r, "" // Redis's INFO
	}
	if name == "warn" {
		args = args[1:] // the key of its limit
	}
	text, ok = constant(args[0])
	if !ok {
		return "", r, "the message is not a constant"
	}
	var attrs []string
	for i := 1; i < len(args); i += 2 {
		key, ok := constant(args[i])
		if !ok {
			return text, r, "the name of an attribute is not a constant"
		}
		attrs = append(attrs, key)
	}
	if slices.Contains(attrs, "err") {
		bad = "an error's attribute is called error"
	}
	r.attrs = strings.Join(attrs, ", ")
	return text, r, bad
}

func constant(e ast.Expr) (string, bool) {
	if sum, ok := e.(*ast.BinaryExpr); ok && sum.Op == token.ADD {
		left, ok := constant(sum.X)
		right, also := constant(sum.Y)
		return left + right, ok && also
	}
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(l.Value)
	return s, err == nil
}
