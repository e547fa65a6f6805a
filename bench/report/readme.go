package report

import (
	_ "embed"
	"fmt"
	"os"
	"regexp"
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

func (r *Record) subject(name string) *subjectRecord {
	for i := range r.Subjects {
		if r.Subjects[i].Name == name {
			return &r.Subjects[i]
		}
	}
	return nil
}

// versions are those of libraries in the names of rows.
var versions = regexp.MustCompile(` v\d+\.\d+\.\d+`)

// cell returns a cell of a subject's table, of the first row that begins with row, whatever the
// library's version in it.
func (r *Record) cell(subject, row, column string) (string, error) {
	s := r.subject(subject)
	if s == nil {
		return "", fmt.Errorf("the run has no subject %s", subject)
	}
	for _, cells := range s.Table[1:] {
		if !strings.HasPrefix(versions.ReplaceAllString(strings.TrimSpace(cells[0]), ""), row) {
			continue
		}
		for i, name := range s.Table[0] {
			if name == column && i < len(cells) {
				return cells[i], nil
			}
		}
		return "", fmt.Errorf("%s: no column %q in %q", subject, column, s.Table[0])
	}
	return "", fmt.Errorf("%s: no row %q", subject, row)
}

// library returns the name of a library with the version that a subject measured: how the first row that names both begins.
func (r *Record) library(subject, name string) (string, error) {
	s := r.subject(subject)
	if s == nil {
		return "", fmt.Errorf("the run has no subject %s", subject)
	}
	for _, cells := range s.Table[1:] {
		first := strings.TrimSpace(cells[0])
		if at := versions.FindStringIndex(first); at != nil && first[:at[0]] == name {
			return first[:at[1]], nil
		}
	}
	return "", fmt.Errorf("%s: no row with a version of %s", subject, name)
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
