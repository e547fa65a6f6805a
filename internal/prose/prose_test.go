package prose

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "lower the ceilings to what there is; none is raised")

const ceilingsFile = "testdata/ceilings.txt"

// A ceiling is the most that a package may have. That of a package that is not in the file is
// allOthers.
type ceiling struct{ perMille, percent int }

var allOthers = ceiling{1, 5}

// The ceilings fall: mended comments stay so.
func TestProse_CommentsNameTheActorAndWrap(t *testing.T) {
	all, err := Packages("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 || all["coord"].Words < 1000 {
		t.Fatalf("%d packages, coord has %d words", len(all), all["coord"].Words)
	}
	ceilings := read(t)
	for dir, c := range ceilings {
		if _, ok := all[dir]; !ok && !*update {
			t.Logf("%s has ceilings and is gone", dir)
			continue
		}
		now := ceiling{min(c.perMille, all[dir].PerMille()), min(c.percent, all[dir].Percent())}
		if *update {
			ceilings[dir] = now
		}
	}
	for dir, s := range all {
		c, ok := ceilings[dir]
		if !ok {
			c = allOthers
		}
		if s.Unnamed > 5 && s.PerMille() > c.perMille { // in a small package few are many
			t.Errorf("%s: %d of 1,000 words of comments stand for an actor without naming it (who, whoever, nobody, somebody), %d at most: write owner, holder, caller, node",
				dir, s.PerMille(), c.perMille)
		}
		if s.Percent() > c.percent {
			t.Errorf("%s: %d of 100 lines of comments have more than %d columns, %d at most", dir, s.Percent(), Width, c.percent)
		}
	}
	if *update {
		var b strings.Builder
		b.WriteString("# For each package: unnamed actors in 1,000 words of comments, long lines in 100 of them, at most.\n")
		b.WriteString("# go test ./internal/prose -update lowers them. All others: 1 and 5.\n\n")
		for _, dir := range slices.Sorted(maps.Keys(ceilings)) {
			if _, there := all[dir]; there && ceilings[dir] != allOthers {
				fmt.Fprintf(&b, "%-32s %3d %3d\n", dir, ceilings[dir].perMille, ceilings[dir].percent)
			}
		}
		if err := os.WriteFile(ceilingsFile, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Documents keep to the same, with one word for each: a quotation, such as a message of the log.
func TestProse_DocumentsNameTheActor(t *testing.T) {
	all, err := Documents("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 || all["README.md"].Words < 1000 {
		t.Fatalf("%d documents, README.md has %d words", len(all), all["README.md"].Words)
	}
	for name, s := range all {
		if s.Unnamed > 1 && s.PerMille() > 1 {
			t.Errorf("%s: %d of %d words stand for an actor without naming it (who, whoever, nobody, somebody): write owner, holder, caller, node", name, s.Unnamed, s.Words)
		}
	}
}

// In each directory of the root fewer than one word of 1,000 of comments and documents stands for
// an actor without naming it.
func TestProse_RoomsNameTheActor(t *testing.T) {
	all, err := Rooms("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 || all["internal"].Words < 50_000 || all["docs"].Words < 20_000 {
		t.Fatalf("%d directories, internal has %d words, docs %d", len(all), all["internal"].Words, all["docs"].Words)
	}
	for name, s := range all {
		if n := s.Unnamed - s.Whose; 1000*n >= s.Words {
			t.Errorf("%s: %d of %d words stand for an actor without naming it (who, whoever, nobody, somebody, anybody)", name, n, s.Words)
		}
	}
}

func read(t *testing.T) map[string]ceiling {
	t.Helper()
	text, err := os.ReadFile(ceilingsFile)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]ceiling)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			continue
		}
		var dir string
		var c ceiling
		if _, err := fmt.Sscan(line, &dir, &c.perMille, &c.percent); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all[dir] = c
	}
	return all
}

func TestStyle(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.go")
	text := "// Package a is one that nobody needs.\npackage a\n\nfunc f() { // whoever's\n\t/* Who\n" + strings.Repeat("x", Width+1) + " */\n}\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := add(Style{}, file)
	if want := (Style{Words: 10, Unnamed: 3, Lines: 4, Long: 1}); err != nil || s != want {
		t.Errorf("got %+v, %v, want %+v", s, err, want)
	}
	if s.PerMille() != 300 || s.Percent() != 25 {
		t.Errorf("%d, %d", s.PerMille(), s.Percent())
	}
}
