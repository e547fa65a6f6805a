package lease

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	diagram = regexp.MustCompile("(?s)\\*\\*(\\w+)\\*\\*:[^`]*?```mermaid\nstateDiagram-v2\n(.*?)```")
	arrow   = regexp.MustCompile(`(?m)^\s+(\S+) --> (\w+)`)
)

// arrowsOf returns the transitions of a table as a diagram has them, in order.
func arrowsOf[S interface {
	~uint8
	fmt.Stringer
}](table [][]S) (all []string) {
	id := func(x S) string {
		return strings.NewReplacer(",", "", " ", "_").Replace(x.String())
	}
	for from, next := range table {
		for _, to := range next {
			all = append(all, id(S(from))+" "+id(to))
		}
	}
	slices.Sort(all)
	return all
}

// TestDiagrams_HaveTheTransitionsOfTheTables compares DESIGN.md with the tables.
func TestDiagrams_HaveTheTransitionsOfTheTables(t *testing.T) {
	text, err := os.ReadFile("../../DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"Phase": arrowsOf(nextPhases[:]), "Naming": arrowsOf(nextNamings[:]), "Ending": arrowsOf(nextEndings[:]),
		"Looking": arrowsOf(nextLookings[:]), "Source": arrowsOf(nextSources[:]),
	}
	for _, d := range diagram.FindAllStringSubmatch(string(text), -1) {
		var got []string
		for _, a := range arrow.FindAllStringSubmatch(d[2], -1) {
			if a[1] != "[*]" {
				got = append(got, a[1]+" "+a[2])
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want[d[1]]) {
			t.Errorf("the diagram of %s has\n%s\nand the table\n%s", d[1], strings.Join(got, "\n"), strings.Join(want[d[1]], "\n"))
		}
		delete(want, d[1])
	}
	for name := range want {
		t.Errorf("there is no diagram of %s", name)
	}
}
