package snippets

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/repo"
)

// read returns a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// words are a quotation of the program's output: three of them at least, without the parts that
// differ from case to case.
var words = regexp.MustCompile(`^(holdfast: )?[a-z]+(,? [A-Za-z]+:?){2,}$`)

// The runbook's quotations of logs and errors are literals of the code.
func TestRunbook_QuotesWhatTheCodeSays(t *testing.T) {
	var code strings.Builder
	err := repo.GoFiles(root(t), func(file string) error {
		if strings.HasSuffix(file, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				s, err := strconv.Unquote(l.Value)
				if err != nil {
					t.Error(err)
				}
				code.WriteString(s + "\n")
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	quoted := 0
	for _, m := range span.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, "docs/runbook.md"), ""), -1) {
		if !words.MatchString(m[1]) || strings.HasPrefix(m[1], "holdfast ") { // a command
			continue
		}
		if quoted++; !strings.Contains(code.String(), m[1]) {
			t.Errorf("no code says %q", m[1])
		}
	}
	if quoted < 5 {
		t.Errorf("%d quotations", quoted)
	}
}

// The table of versions on the wire has those of the code.
func TestReleasing_VersionsOfFrames(t *testing.T) {
	code := regexp.MustCompile(`frameVersions = peer.Versions{Oldest: (\d+), Newest: (\d+)}`).FindStringSubmatch(read(t, "coord/cluster.go"))
	said := regexp.MustCompile(`(?m)^\| what frames mean[^|]*\| (\d+) to (\d+) `).FindStringSubmatch(read(t, "RELEASING.md"))
	if len(code) != 3 || len(said) != 3 || code[1] != said[1] || code[2] != said[2] {
		t.Errorf("the code says %q, RELEASING.md %q", code, said)
	}
}

// strict is a condition that refuses a second write under the same lock.
var strict = regexp.MustCompile(`(?i)\b(where|and) (coalesce\()?fence(, 0\))? ?<[^=]`)

// No SQL to copy compares a token by "<". A sale of examples/inventory does, which is for it to
// check once per lock, and rivals in bench do.
func TestSQL_TakesTheSameTokenAgain(t *testing.T) {
	dir := root(t)
	looked := 0
	look := func(file string) error {
		name, err := filepath.Rel(dir, file)
		if err != nil || strings.HasPrefix(name, "bench/") || strings.HasPrefix(name, "examples/inventory/") || strings.HasPrefix(name, "internal/snippets/") {
			return err
		}
		text, err := os.ReadFile(file)
		if looked += strings.Count(string(text), "fence, 0) <= $1"); strict.Match(text) {
			t.Errorf("%s: %q: a second write under the same lock is refused", name, strict.Find(text))
		}
		return err
	}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if err := look(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := repo.GoFiles(dir, look); err != nil {
		t.Fatal(err)
	}
	if looked < 3 {
		t.Errorf("%d statements that are right", looked)
	}
}
