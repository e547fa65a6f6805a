package main

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// tests writes the tests about the rule, with commands that run them, and others that name it.
func (p *page) tests() {
	about := p.about()
	fmt.Fprintln(p, "\ntests about it")
	var dirs []string
	names := make(map[string][]string) // by directory
	for _, m := range about {
		fmt.Fprintf(p, "./%s:%d: %s\n", m.file, m.line, m.text)
		dir := "./" + path.Dir(m.file)
		if names[dir] == nil {
			dirs = append(dirs, dir)
		}
		names[dir] = append(names[dir], m.text)
	}
	if dirs == nil {
		fmt.Fprintln(p, "none")
	}
	for _, dir := range dirs {
		flags := ""
		if dir == "./internal/sim" {
			flags = "-tags simulation"
		}
		fmt.Fprintln(p, command(flags, "", names[dir], dir))
	}
	p.list("other tests that name it", "none", p.others(about))
}

var tested = regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9_]+)`")

// about returns the tests of the table, then those with a comment that names the rule: where they
// are, with their names.
func (p *page) about() (all []mention) {
	tests := slices.DeleteFunc(slices.Clone(p.files), func(file string) bool { return !isTest(file) })
	for _, m := range tested.FindAllStringSubmatch(p.cell(3), -1) {
		begins := "func " + m[1] + "("
		for _, f := range p.lines(tests, begins, regexp.MustCompile("^"+regexp.QuoteMeta(begins))) {
			if test := (mention{f.file, f.line, m[1]}); !slices.Contains(all, test) {
				all = append(all, test)
			}
		}
	}
	for _, m := range p.all {
		if !isTest(m.file) || !strings.HasPrefix(m.text, "//") {
			continue
		}
		d := p.at(m)
		if m.line < d.begins || m.line > d.line || !strings.HasPrefix(d.name, "Test") && !strings.HasPrefix(d.name, "Fuzz") {
			continue
		}
		if test := (mention{m.file, d.line, d.name}); !slices.Contains(all, test) {
			all = append(all, test)
		}
	}
	return all[:min(len(all), 2*most)]
}

// others returns the first line that names the rule in each other function of a test's file, with
// the tests that use that function.
func (p *page) others(about []mention) (lines []string) {
	seen := make(map[string]bool)
	for _, m := range p.all {
		if !isTest(m.file) {
			continue
		}
		d := p.at(m)
		of := m.file + ":" + d.name
		if seen[of] || slices.ContainsFunc(about, func(test mention) bool { return test.text == d.name }) {
			continue
		}
		seen[of] = true
		by := d.name
		switch {
		case len(lines) >= most: // is only counted
		case !isRun.MatchString(by):
			by = fmt.Sprintf("%s (by %s)", p.testsOf(d, m.file), strings.TrimPrefix(d.name, "."))
		}
		lines = append(lines, fmt.Sprintf("./%s:%d: %s: %s", m.file, m.line, by, strings.TrimSpace(m.text)))
	}
	return lines
}
