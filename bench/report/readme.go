package report

import (
	_ "embed"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

// readmeText is README's part with figures. It takes them from a record by subject, row and column.
//
//go:embed readme.tmpl
var readmeText string

// readmeBegin and readmeEnd are lines around that part.
const (
	readmeBegin = "<!-- These figures are written by make charts: change bench/report/readme.tmpl. -->\n"
	readmeEnd   = "<!-- The end of the figures. -->\n"
)

// readmeFigures fills the template with a record's cells. A cell that the record lacks is an error.
func readmeFigures(r *Record) (string, error) {
	t, err := template.New("readme.tmpl").Funcs(template.FuncMap{
		"cell":    r.cell,
		"library": r.library,
		"date":    func() string { return r.Date.Format("January 2006") },
	}).Parse(readmeText)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	if err := t.Execute(&b, nil); err != nil {
		return "", err
	}
	return b.String(), nil
}

// versions are those of libraries in the names of rows.
var versions = regexp.MustCompile(` v\d+\.\d+\.\d+`)

// find returns the head of a subject's table, and the first row that has a name like that.
func (r *Record) find(subject string, like func(name string) bool) (head, row []string, err error) {
	i := slices.IndexFunc(r.Subjects, func(s subjectRecord) bool { return s.Name == subject })
	if i < 0 {
		return nil, nil, fmt.Errorf("the run has no subject %s", subject)
	}
	table := r.Subjects[i].Table
	n := slices.IndexFunc(table[1:], func(row []string) bool { return like(strings.TrimSpace(row[0])) })
	if n < 0 {
		return nil, nil, fmt.Errorf("%s: no such row", subject)
	}
	return table[0], table[1+n], nil
}

// cell returns a cell of a subject's table, of the first row that begins with row, whatever the
// library's version in it.
func (r *Record) cell(subject, row, column string) (string, error) {
	head, cells, err := r.find(subject, func(name string) bool { return strings.HasPrefix(versions.ReplaceAllString(name, ""), row) })
	if err != nil {
		return "", fmt.Errorf("%q: %w", row, err)
	}
	if i := slices.Index(head, column); i >= 0 && i < len(cells) {
		return cells[i], nil
	}
	return "", fmt.Errorf("%s: no column %q in %q", subject, column, head)
}

// library returns the name of a library with the version that a subject measured: how the first row
// that names both begins.
func (r *Record) library(subject, name string) (version string, err error) {
	_, _, err = r.find(subject, func(first string) bool {
		at := versions.FindStringIndex(first)
		if at == nil || first[:at[0]] != name {
			return false
		}
		version = first[:at[1]]
		return true
	})
	return version, err
}

// withFigures returns text with the figures between the two lines.
func withFigures(text, figures string) (string, error) {
	before, rest, ok := strings.Cut(text, readmeBegin)
	_, after, ended := strings.Cut(rest, readmeEnd)
	if !ok || !ended {
		return "", fmt.Errorf("no part between %q and %q", readmeBegin, readmeEnd)
	}
	return before + readmeBegin + figures + readmeEnd + after, nil
}

func writeReadme(file string, r *Record) error {
	figures, err := readmeFigures(r)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	now, err := withFigures(string(text), figures)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(now), 0o644)
}
