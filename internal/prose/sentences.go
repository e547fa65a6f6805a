package prose

import (
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"

	"github.com/holdfast-go/holdfast/internal/repo"
)

// Words is the number of words that a sentence has at most.
const Words = 25

// Sentences counts those of comments or of a document.
type Sentences struct {
	All     int
	Clauses int // with a clause in the place of a noun: "what was released", "by which"
	Long    int // of more than Words words
}

var (
	clause   = regexp.MustCompile(`(?i)\bwhat\b|\b(?:of|by|to|for|from|with|on|after|before|at) (?:which|whom)\b`)
	sentence = regexp.MustCompile(`[.:;!?]['")\]]*\s+`)
	quoted   = regexp.MustCompile("`[^`]*`" + `|"[^"]*"`)
	target   = regexp.MustCompile(`\]\([^)]*\)`)
	item     = regexp.MustCompile(`^\s*(?:[-*]|\d+\.|[A-Z]\d\.) `)
)

// count adds the sentences of a paragraph.
func (x *Sentences) count(paragraph string) {
	paragraph = quoted.ReplaceAllString(strings.Join(strings.Fields(paragraph), " "), "x")
	for _, s := range sentence.Split(paragraph, -1) {
		words := len(strings.Fields(s))
		if words == 0 {
			continue
		}
		x.All++
		if clause.MatchString(s) {
			x.Clauses++
		}
		if words > Words {
			x.Long++
		}
	}
}

// Comments returns the sentences of the comments of each directory with Go code below root, tests
// included. Lines of tables and of code are left out.
func Comments(root string) (map[string]Sentences, error) {
	all := make(map[string]Sentences)
	err := repo.GoFiles(root, func(file string) error {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		dir, err := relative(root, file)
		x := all[dir]
		for _, g := range f.Comments {
			if text := g.Text(); !strings.HasPrefix(text, "Output:") {
				paragraphs(text, func(line string) bool { return strings.HasPrefix(line, "\t") }, x.count)
			}
		}
		all[dir] = x
		return err
	})
	return all, err
}

// paragraphs calls f for each paragraph of a text, without the lines that are left out. Those end
// one, as an empty line does.
func paragraphs(text string, out func(line string) bool, f func(string)) {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if out(line) || strings.TrimSpace(line) == "" {
			f(b.String())
			b.Reset()
			continue
		}
		b.WriteString(line)
	}
	f(b.String())
}

// Document returns the sentences of a document in Markdown. Headings and code are left out, and
// each cell of a table is a paragraph.
func Document(file string) (x Sentences, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return x, err
	}
	code := false
	plain := target.ReplaceAllString(string(text), "]")
	var b strings.Builder
	for line := range strings.Lines(plain) { // an item is a paragraph
		if item.MatchString(line) {
			b.WriteByte('\n')
		}
		b.WriteString(line)
	}
	paragraphs(b.String(), func(line string) bool {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			code = !code
			return true
		case strings.HasPrefix(line, "|"):
			for cell := range strings.SplitSeq(quoted.ReplaceAllString(line, "x"), "|") {
				x.count(cell)
			}
			return true
		}
		return code || strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "#")
	}, x.count)
	return x, nil
}
