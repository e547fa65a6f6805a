package snippets

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	fenced  = regexp.MustCompile("(?ms)^```.*?^```$")
	link    = regexp.MustCompile(`\]\(([^)#\s]*)(?:#([^)\s]*))?\)`)
	heading = regexp.MustCompile(`^#{1,6} +(.*?)[ #]*$`)
	inLink  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// anchors returns the anchors behind # in links to a document: its headings as GitHub writes them.
func anchors(text string) map[string]bool {
	all := make(map[string]bool)
	for line := range strings.Lines(fenced.ReplaceAllString(text, "")) {
		m := heading.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		name := anchor(inLink.ReplaceAllString(m[1], "$1"))
		for n := 1; all[name]; n++ {
			name = fmt.Sprint(anchor(m[1]), "-", n)
		}
		all[name] = true
	}
	return all
}

// anchor keeps letters, digits, _ and -, in lower case, and makes a space a -.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// The targets of the documents' links in the repository are there, with the heading that a link
// names.
func TestLinksLeadSomewhere(t *testing.T) {
	dir := root(t)
	checked, headings := 0, 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(string(text), ""), -1) {
				if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
					continue
				}
				checked++
				to := file
				if m[1] != "" {
					to = filepath.Join(filepath.Dir(file), m[1])
				}
				if _, err := os.Stat(to); err != nil {
					t.Errorf("%s links to %s, which is not there", filepath.Base(file), m[1])
					continue
				}
				if m[2] == "" || filepath.Ext(to) != ".md" {
					continue
				}
				headings++
				there, err := os.ReadFile(to)
				if err != nil {
					t.Fatal(err)
				}
				if !anchors(string(there))[m[2]] {
					t.Errorf("%s links to %s#%s: there is no such heading", filepath.Base(file), m[1], m[2])
				}
			}
		}
	}
	if checked < 50 || headings < 50 {
		t.Errorf("%d links, %d of them to headings", checked, headings)
	}
}

func TestAnchors(t *testing.T) {
	got := anchors("# One lock's `Journey`\n## A [link](b.md#c), twice\n```\n# no heading\n```\n## A link, twice\n### M_D: 3 s\n")
	for _, want := range []string{"one-locks-journey", "a-link-twice", "a-link-twice-1", "m_d-3-s"} {
		if !got[want] {
			t.Errorf("there is no %s in %v", want, got)
		}
	}
	if len(got) != 4 {
		t.Errorf("%v", got)
	}
}
