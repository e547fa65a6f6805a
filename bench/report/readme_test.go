package report

import (
	"os"
	"strings"
	"testing"
)

// TestReadme_Figures compares README's figures with the runs that they are from, which are in the
// repository.
func TestReadme_Figures(t *testing.T) {
	r, err := readRecords([]string{"../../docs/figures.json", "../../docs/figures-stalls.json"})
	if err != nil {
		t.Fatal(err)
	}
	figures, err := readmeFigures(r)
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	want, err := withFigures(string(readme), figures)
	if err != nil {
		t.Fatal(err)
	}
	if string(readme) == want {
		return
	}
	is := strings.Split(string(readme), "\n")
	for i, line := range strings.Split(want, "\n") {
		if i >= len(is) || is[i] != line {
			t.Fatalf("README.md, line %d, is not what docs/figures.json says: make charts writes it. Got\n%s\nwant\n%s", i+1, is[min(i, len(is)-1)], line)
		}
	}
	t.Fatal("README.md has more lines than make charts writes")
}

// TestReadme_CellsThatAreMissing: a figure that the run lacks is an error, and never an empty cell.
func TestReadme_CellsThatAreMissing(t *testing.T) {
	r := &Record{Subjects: []subjectRecord{{Name: "own", Result: Result{Table: [][]string{{"", "median"}, {"Lock", "75"}, {"short"}}}}}}
	for _, x := range []struct{ subject, row, column, cell string }{
		{"own", "Lock", "median", "75"}, {"owned", "Lock", "median", ""}, {"own", "Unlock", "median", ""}, {"own", "Lock", "mean", ""}, {"own", "short", "median", ""},
	} {
		if got, err := r.cell(x.subject, x.row, x.column); got != x.cell || (err == nil) != (x.cell != "") {
			t.Errorf("cell(%q, %q, %q): %q, %v", x.subject, x.row, x.column, got, err)
		}
	}
	r.Subjects[0].Table = append(r.Subjects[0].Table, []string{"lib", "1"}, []string{"library v1.2.3", "2"}, []string{"lib v0.9.4, often", "3"})
	for _, x := range []struct{ subject, name, library string }{
		{"own", "lib", "lib v0.9.4"}, {"own", "library", "library v1.2.3"}, {"own", "Lock", ""}, {"owned", "lib", ""},
	} {
		if got, err := r.library(x.subject, x.name); got != x.library || (err == nil) != (x.library != "") {
			t.Errorf("library(%q, %q): %q, %v", x.subject, x.name, got, err)
		}
	}
	if _, err := withFigures("no figures", ""); err == nil {
		t.Error("a README without the lines is written to")
	}
}
