package prose

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Of 100 sentences at most three have a clause in the place of a noun, and two more than 25 words;
// five and three in a document. A few are the exceptions of a small package.
func TestSentences_NameThingsAndAreShort(t *testing.T) {
	comments, err := Comments("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(comments) < 100 || comments["coord"].All < 4000 {
		t.Fatalf("%d packages, coord has %d sentences", len(comments), comments["coord"].All)
	}
	for dir, x := range comments {
		check(t, dir, x, 3, 2)
	}
	documents, err := Documents("../..")
	if err != nil {
		t.Fatal(err)
	}
	all := 0
	for name := range documents {
		x, err := Document(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		check(t, name, x, 5, 3)
		all += x.All
	}
	if all < 5000 {
		t.Fatalf("documents have %d sentences", all)
	}
}

func check(t *testing.T, name string, x Sentences, clauses, long int) {
	t.Helper()
	if 100*x.Clauses > clauses*x.All && x.Clauses > 3 {
		t.Errorf(`%s: %d of %d sentences have a clause in the place of a noun ("what was released", "by which"), %d of 100 at most: write the released keys`, name, x.Clauses, x.All, clauses)
	}
	if 100*x.Long > long*x.All && x.Long > 3 {
		t.Errorf("%s: %d of %d sentences have more than %d words, %d of 100 at most", name, x.Long, x.All, Words, long)
	}
}

func TestSentences(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("word ", Words+1)
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("a.go", "// Package a has a type, of which nothing is known. It is short:\n//\n//\ta table of what "+long+"\n//\n// What it does. "+long+"\npackage a\n\n//go:noinline\nfunc f() {} // \"what\" is quoted\n")
	got, err := Comments(dir)
	if want := (Sentences{All: 5, Clauses: 2, Long: 1}); err != nil || got["."] != want {
		t.Errorf("comments: got %+v, %v, want %+v", got["."], err, want)
	}
	x, err := Document(write("a.md", "# What is left out\n\nTells `what`. Tells\nwhat.\n\n    what\n\n```\nwhat "+long+"\n```\n\n| a | by which |\n| --- | --- |\n| "+long+" | b |\n\n- "+long[:60]+"\n- "+long[:70]+"\n"))
	if want := (Sentences{All: 10, Clauses: 2, Long: 1}); err != nil || x != want {
		t.Errorf("a document: got %+v, %v, want %+v", x, err, want)
	}
}
