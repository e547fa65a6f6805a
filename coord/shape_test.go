package coord

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"
)

// mostFields is how many fields a type of this package may have.
const mostFields = 12

// TestShape_TypesHaveADozenFields: state that belongs together is a type of its own, which a
// comment describes. Options and reports are exempt, as their fields are their purpose: exported
// types but Coordinator, and types that are encoded as JSON.
func TestShape_TypesHaveADozenFields(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	most, seen := "", 0
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), e.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			s, ok := spec.Type.(*ast.StructType)
			if !ok || spec.Name.IsExported() && spec.Name.Name != "Coordinator" {
				return true
			}
			fields := 0
			for _, x := range s.Fields.List {
				if x.Tag != nil {
					return true
				}
				fields += max(1, len(x.Names))
			}
			if fields > mostFields {
				t.Errorf("%s has %d fields, %d at most: part of them wants a type of its own", spec.Name.Name, fields, mostFields)
			}
			if fields > seen {
				most, seen = spec.Name.Name, fields
			}
			return true
		})
	}
	if seen < mostFields/2 {
		t.Errorf("the largest type is %s, with %d fields: this test looks at the wrong place", most, seen)
	}
}

// TestShape_PackageDocListsEachMethod: the list of a Coordinator's methods in the comment of the
// package has all of them.
func TestShape_PackageDocListsEachMethod(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "coord.go", nil, parser.PackageClauseOnly|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	methods := reflect.TypeFor[*Coordinator]()
	for i := range methods.NumMethod() {
		if name := "[Coordinator." + methods.Method(i).Name + "]"; !strings.Contains(f.Doc.Text(), name) {
			t.Errorf("the comment of the package does not have %s", name)
		}
	}
	if methods.NumMethod() < 30 {
		t.Errorf("%d methods", methods.NumMethod())
	}
}
