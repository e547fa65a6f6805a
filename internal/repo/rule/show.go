package main

import (
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
)

const most = 10 // lines of a list

// kind says of rules where they are.
type kind struct {
	document string
	begins   *regexp.Regexp // the first line of one, with its name
	table    string         // of their keepers
}

// kinds are by the letter before the number.
var kinds = map[string]kind{
	"":  {"docs/protocol.md", regexp.MustCompile(`^([0-9]+)\. \*\*`), "DESIGN.md"},
	"I": {"docs/protocol.md", regexp.MustCompile(`^- \*\*(I[0-9]+)\*\*`), "DESIGN.md"},
	"G": {"docs/takeover.md", regexp.MustCompile(`^(G[0-9]+)\. `), "docs/takeover.md"},
	"E": {"docs/protocol.md", regexp.MustCompile(`^- \*\*(E[0-9]+)\*\*`), "docs/adr/0023-grace-ends-by-rounds.md"},
}

// page is the page of a rule.
type page struct {
	*repository
	io.Writer
	kind
	name    string
	row     []string // cells of the table
	hint    string   // is in each line that names it
	pattern string
	named   *regexp.Regexp
	all     []mention // in Go files
}

type noRuleError string

func (n noRuleError) Error() string {
	return fmt.Sprintf("There is no rule %s: there are N=1 to 17, I1 to I8, G1 to G11 and E1 to E8.", string(n))
}

// show writes the page of a rule.
func (r *repository) show(w io.Writer, name string) error {
	letter := strings.TrimRight(name, "0123456789")
	p := &page{repository: r, Writer: w, kind: kinds[letter], name: name, hint: name, pattern: `\b` + name + `\b`}
	if p.begins == nil {
		return noRuleError(name)
	}
	text := p.rule()
	if len(text) == 0 {
		return noRuleError(name)
	}
	if letter == "" {
		p.hint, p.pattern = "ule", `\b[Rr]ules? ([0-9]+(,| and| to) )*`+name+`\b`
	}
	p.named = regexp.MustCompile(p.pattern)
	code := slices.DeleteFunc(slices.Clone(r.files), func(file string) bool { return path.Ext(file) != ".go" })
	p.all = r.lines(code, p.hint, p.named)

	fmt.Fprintln(w, strings.Join(text, "\n"))
	p.keepers()
	p.transcripts()
	p.stories()
	p.tests()
	p.guardsAndComments()
	return nil
}

// rule returns the lines of the rule's text, which ends at the next one's or at an empty line.
func (p *page) rule() (text []string) {
	in := false
	for line := range strings.Lines(p.text[p.document]) {
		line = strings.TrimSuffix(line, "\n")
		if m := p.begins.FindStringSubmatch(line); m != nil {
			in = m[1] == p.name
		}
		in = in && line != ""
		if in {
			text = append(text, line)
		}
	}
	return text
}

// capped returns the first lines of a list, and says how many more there are.
func capped(lines []string) []string {
	if len(lines) <= most {
		return lines
	}
	return append(slices.Clone(lines[:most]), fmt.Sprintf("  and %d more", len(lines)-most))
}

// list writes a list with its title, or that there is nothing in it.
func (p *page) list(title, none string, lines []string) {
	if len(lines) == 0 {
		lines = []string{none}
	}
	fmt.Fprintf(p, "\n%s\n%s\n", title, strings.Join(capped(lines), "\n"))
}

var keeper = regexp.MustCompile("`([a-z]+(?:\\.[A-Za-z]+)+)`")

// keepers writes which functions keep the rule, by the table, or the table's text instead.
func (p *page) keepers() {
	fmt.Fprintf(p, "\nkept by (%s)\n", p.table)
	for line := range strings.Lines(p.text[p.table]) {
		if strings.HasPrefix(line, "| "+p.name+" ") || strings.HasPrefix(line, "| "+p.name+". ") {
			p.row = strings.Split(line, "|")
			break
		}
	}
	names := keeper.FindAllStringSubmatch(p.cell(2), -1)
	if len(names) == 0 {
		fmt.Fprintln(p, strings.TrimSpace(p.cell(2)))
	}
	for _, m := range names {
		dir, name, _ := strings.Cut(m[1], ".")
		for _, line := range p.declares(dir, name) {
			fmt.Fprintln(p, line)
		}
	}
}

func (p *page) cell(n int) string {
	if n < len(p.row) {
		return p.row[n]
	}
	return ""
}

// declares returns where a package declares Function, Type.Method or an error.
func (p *page) declares(dir, name string) []mention {
	pattern := `^func ` + name + `\(|^\t` + name + ` += `
	if typ, method, ok := strings.Cut(name, "."); ok {
		name, pattern = method, `^func (\([^)]*\b`+typ+`\b[^)]*\) )?`+method+`\(`
	}
	var files []string
	for _, parent := range []string{"", "internal/", "fallback/"} {
		files = append(files, slices.DeleteFunc(p.in(parent+dir+"/*.go"), isTest)...)
	}
	return p.lines(files, name, regexp.MustCompile(pattern))
}

// transcripts writes which name the rule, or are named for it, each with its first line.
func (p *page) transcripts() {
	var names []string
	for _, file := range p.in(transcriptsDir + "/*") {
		name := strings.TrimSuffix(path.Base(file), ".txt")
		numbered := strings.HasPrefix(strings.Replace(name, "rule0", "rule", 1), "rule"+p.name+"_")
		if !numbered && !p.named.MatchString(p.text[file]) {
			continue
		}
		if names == nil {
			fmt.Fprintf(p, "\ntranscripts in %s\n", transcriptsDir)
		}
		names = append(names, name)
		first, _, _ := strings.Cut(p.text[file], "\n")
		fmt.Fprintf(p, "%s: %s\n", name, strings.TrimPrefix(first, "# "))
	}
	if names != nil {
		fmt.Fprintln(p, command("", "TestTranscripts", names, "./internal/lease/leasetest"))
	}
}

// command is one that runs the tests of a package, or some of a test.
func command(flags, test string, names []string, dir string) string {
	if flags != "" {
		flags += " "
	}
	pattern := "^(" + strings.Join(names, "|") + ")$"
	switch {
	case len(names) == 0:
		pattern = test + "$"
	case test != "":
		pattern = test + "$/" + pattern
	}
	return fmt.Sprintf("go test %s-run '%s' %s", flags, pattern, dir)
}

var ofGuard = regexp.MustCompile(`^internal/(?:(?:guard|model)/guard\.go:|model/takeover/(?:guardians|rounds|endings)\.go:[0-9]+:\t[A-Z][A-Za-z]+ .*//)`)

// guardsAndComments writes which guards name the rule, and which comments of the code, of the
// simulation and of the model.
func (p *page) guardsAndComments() {
	inGuards := func(m mention) bool { return ofGuard.MatchString(m.String()) }
	p.list("guards", "none", p.below(inGuards, "internal"))

	p.list("comments of the code that name it", "none: see the functions above", p.below(func(m mention) bool {
		return !isTest(m.file) && !strings.Contains(m.file, "/leasetest/")
	}, "coord", "internal/lease", "internal/guardians", "handoff", "peer", "fallback"))

	p.list("named by the simulation and the model", "none", p.below(func(m mention) bool {
		return !isTest(m.file) && !inGuards(m) && (m.file != scenarios || !strings.Contains(m.text, "//"))
	}, "internal/sim", "internal/model", "internal/lease/leasetest"))
}

// below returns the mentions in directories that are to be there.
func (p *page) below(there func(m mention) bool, dirs ...string) (lines []string) {
	for _, dir := range dirs {
		for _, m := range p.all {
			if strings.HasPrefix(m.file, dir+"/") && there(m) {
				lines = append(lines, m.String())
			}
		}
	}
	return lines
}
