package guard

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"
)

// namesOf returns the names that a file declares by a token, and the names in its maps, each with
// its own variable.
func namesOf(t *testing.T, file string, tok token.Token) (names []string, maps map[string][]string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	maps = make(map[string][]string)
	for _, d := range f.Decls {
		d, ok := d.(*ast.GenDecl)
		if !ok || d.Tok != tok {
			continue
		}
		for _, s := range d.Specs {
			s := s.(*ast.ValueSpec)
			list, isMap := s.Values[0].(*ast.CompositeLit)
			if !isMap {
				names = append(names, s.Names[0].Name)
				continue
			}
			for _, e := range list.Elts {
				pair := e.(*ast.KeyValueExpr)
				name, err := strconv.Unquote(pair.Key.(*ast.BasicLit).Value)
				of := pair.Value.(*ast.UnaryExpr).X.(*ast.Ident).Name
				if err != nil || of != name {
					t.Errorf("%s has %s for %s", s.Names[0].Name, of, name)
				}
				maps[s.Names[0].Name] = append(maps[s.Names[0].Name], name)
			}
		}
	}
	slices.Sort(names)
	for _, list := range maps {
		slices.Sort(list)
	}
	return names, maps
}

// Each guard is a constant, with the build tag mutants a variable, and in All.
func TestGuards_AreTheSameInAllPlaces(t *testing.T) {
	constants, _ := namesOf(t, "guard.go", token.CONST)
	variables, maps := namesOf(t, "mutants.go", token.VAR)
	if len(constants) == 0 || !slices.Equal(constants, variables) || !slices.Equal(constants, maps["All"]) {
		t.Errorf("constants %v\nvariables %v\nAll %v", constants, variables, maps["All"])
	}
	for _, name := range maps["Core"] {
		if !slices.Contains(constants, name) {
			t.Errorf("Core has %s", name)
		}
	}
}
