package main

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

const scenarios = "internal/sim/scenarios.go"

// stories writes which tests take the rule's guards away, and which scenarios of the simulation are
// about it.
func (p *page) stories() {
	fmt.Fprintln(p, "\nstories")
	lines := p.modelStories()
	for _, x := range []struct{ file, tells, flags, test, dir string }{
		{"internal/model/takeover/guardians.go", "A session is dead that it, or a holder, takes for valid, without each of these guards.",
			"-v", "TestGuardians_EachGuardPrevents", "./internal/model/takeover"},
		{"internal/model/takeover/endings.go", "A session is dead that a holder takes for valid, without each of these guards.",
			"-v", "TestEndings_EachGuardPrevents", "./internal/model/takeover"},
		{"internal/model/takeover/rounds.go", "A Grace ends early that must not, without each of these guards.",
			"-v", "TestRounds_EachGuardPrevents", "./internal/model/takeover"},
		{"internal/guard/guard.go", "The simulation notices that a guard is missing, a minute each at most.",
			"-tags simulation,mutants -v", "TestMutants", "./internal/sim"},
	} {
		if guards := p.guards(x.file); len(guards) > 0 {
			lines = append(lines, "# "+x.tells, command(x.flags, x.test, guards, x.dir))
		}
	}
	for _, name := range p.firsts(scenarios, `^\t\{"([^"]*)".* // .*`+p.pattern) {
		pattern := regexp.MustCompile("[^A-Za-z0-9]").ReplaceAllString(name, ".")
		lines = append(lines, "# Scenario: "+name+".", fmt.Sprintf("go test -tags simulation -v -run 'TestScenarios$/^%s$' ./internal/sim", pattern))
	}
	if lines == nil {
		lines = []string{"none of its own: the simulation looks for what breaks it, and the model explores it (docs/verification.md)"}
	}
	fmt.Fprintln(p, strings.Join(lines, "\n"))
}

// guards returns the guards of a file that name the rule.
func (p *page) guards(file string) []string {
	return p.firsts(file, `^\t([A-Z][A-Za-z]+).*//.*`+p.pattern)
}

// firsts returns the first group of a pattern in the lines of a file that name the rule.
func (p *page) firsts(file, pattern string) (all []string) {
	match := regexp.MustCompile(pattern)
	for _, m := range p.all {
		if m.file != file {
			continue
		}
		if groups := match.FindStringSubmatch(m.text); groups != nil {
			all = append(all, groups[1])
		}
	}
	return all
}

var (
	ofModel = regexp.MustCompile(`^\t\t\{([A-Z][A-Za-z0-9]+), `)
	without = regexp.MustCompile(`^# (Without [A-Za-z]+: (I[0-9]+):.*)`)
)

// modelStories returns the tests of package model that take a guard away. Rows of their tables begin
// with the guard, or with the invariant that breaks.
func (p *page) modelStories() (lines []string) {
	guards := append(p.guards("internal/model/guard.go"), p.name)
	for _, file := range p.in(storiesDir + "/*") {
		if m := without.FindStringSubmatch(p.text[file]); m != nil && m[2] == p.name {
			guards = append(guards, strings.TrimSuffix(path.Base(file), ".txt"))
		}
	}
	var tests []declaration
	off := make(map[string][]string) // by test
	for _, m := range p.lines(p.in("internal/model/*_test.go"), "\t\t{", ofModel) {
		test, guard := p.at(m), ofModel.FindStringSubmatch(m.text)[1]
		if !slices.Contains(guards, guard) || strings.Contains(test.name, "Specified") || slices.Contains(off[test.name], guard) {
			continue
		}
		if off[test.name] == nil {
			tests = append(tests, test)
		}
		off[test.name] = append(off[test.name], guard)
	}
	for _, test := range tests {
		names, dir := off[test.name], "./internal/model"
		tells, _, more := strings.Cut(strings.Join(strings.Fields(test.comment), " "), ". ")
		if more {
			tells += "."
		}
		if test.name == "TestDefences" {
			tells, dir = tells+" It takes minutes.", dir+" -model.deep"
		}
		pattern := names
		if len(names) > most {
			pattern = nil // all
		}
		lines = append(lines, "# "+tells, command("-v", test.name, pattern, dir))
		if test.name == "TestGuards" {
			lines = append(lines, "  Its stories are in "+storiesDir+".")
			lines = append(lines, p.told(names)...)
		}
	}
	return lines
}

// told returns how the stories without guards end, the shortest first.
func (p *page) told(guards []string) (lines []string) {
	steps := make(map[string]int)
	for _, guard := range guards {
		text := p.text[path.Join(storiesDir, guard+".txt")]
		if m := without.FindStringSubmatch(text); m != nil {
			n := strings.Count(text, "\n") - 1
			line := fmt.Sprintf("  %s, in %d steps", m[1], n)
			steps[line] = n
			lines = append(lines, line)
		}
	}
	slices.SortFunc(lines, func(a, b string) int { return cmp.Or(steps[a]-steps[b], strings.Compare(a, b)) })
	return capped(lines)
}
