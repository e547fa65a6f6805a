package coord_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// handling is the use of the mutex of partitions in a function.
type handling struct{ lock, locks, unlock, effects bool }

// handlingOf looks for p.lock and p.mu.Lock, p.unlock, and the effects of events.
func handlingOf(f *ast.FuncDecl) (h handling) {
	last := func(x ast.Expr) string {
		switch x := x.(type) {
		case *ast.Ident:
			return x.Name
		case *ast.SelectorExpr:
			return x.Sel.Name
		}
		return ""
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of := ""
		if mu, ok := s.X.(*ast.SelectorExpr); ok && mu.Sel.Name == "mu" {
			of = last(mu.X)
		}
		switch {
		case s.Sel.Name == "Effects":
			h.effects = true
		case s.Sel.Name == "lock" && last(s.X) == "p":
			h.lock = true
		case s.Sel.Name == "unlock":
			h.unlock = true
		case (s.Sel.Name == "Lock" || s.Sel.Name == "TryLock") && of == "p":
			h.locks = true
		}
		return true
	})
	return h
}

// TestPartition_EventsEndInOnePlace: a function that may have effects on others ends with
// partition.unlock, which carries them out in order, and never by the mutex alone. A function that
// only looks, or has no effects, takes the mutex itself.
func TestPartition_EventsEndInOnePlace(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	events, looks := 0, 0
	fset := token.NewFileSet()
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, f.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			h := handlingOf(f)
			switch {
			case (h.lock || h.locks) && h.effects && !h.unlock:
				t.Errorf("%v: %s may have effects, and does not end with partition.unlock", fset.Position(f.Pos()), f.Name.Name)
			case (h.lock || h.locks) && h.effects:
				events++
			case h.lock || h.locks:
				looks++
			}
		}
	}
	if events < 40 || looks < 20 {
		t.Errorf("%d events and %d looks: this test looks at the wrong place", events, looks)
	}
}
