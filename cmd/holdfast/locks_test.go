package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/coord"
)

// Processes without a cluster are not asked, and named where keys are listed: a list without theirs
// does not look whole.
func TestLocks_ProcessesWithoutACluster(t *testing.T) {
	n := newNamespace(t)
	loner := n.open(&coord.Options{Name: "loner"})
	l, err := loner.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Unlock() }()
	for _, name := range []string{"locks", "top"} {
		if out := n.start(name).want(0); !strings.Contains(out, "NOT ASKED: loner (") || !strings.Contains(out, "no node of a cluster") {
			t.Errorf("%s: %s", name, out)
		}
		list := decode[coord.KeyList](n, name)
		if len(list.Unanswered) != 1 || list.Unanswered[0].Name != "loner" || list.Unanswered[0].PID != os.Getpid() {
			t.Errorf("%s: %+v", name, list)
		}
	}
	if out := n.start("inspect", "k").want(0); !strings.Contains(out, "held by loner") {
		t.Errorf("inspect: %s", out)
	}
	if out := n.start("nodes").want(0); !strings.Contains(out, "loner") {
		t.Errorf("nodes: %s", out)
	}
	if err := errors.Join(l.Unlock(), loner.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"locks", "top", "nodes"} { // docs/arbiters.md goes by the last one
		if out := n.start(name).want(0); strings.Contains(out, "loner") {
			t.Errorf("%s, when it has ended: %s", name, out)
		}
	}
}

// Each command that the documents name is there.
func TestDocs_NameCommandsThatAreThere(t *testing.T) {
	there := map[string]bool{"completion": true} // cobra adds it
	for _, c := range newRoot().Commands() {
		there[c.Name()] = true
	}
	files, err := filepath.Glob("../../docs/*.md")
	more, wrong := filepath.Glob("../../docs/adr/*.md")
	if err != nil || wrong != nil || len(files) < 20 {
		t.Fatal(files, err, wrong)
	}
	command, count := regexp.MustCompile("(?m)(?:`|^\\$ |^ {4})holdfast ([a-z]+(?:-[a-z]+)*)"), 0
	for _, file := range append(append(files, more...), "../../README.md", "../../SECURITY.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range command.FindAllSubmatch(text, -1) {
			if count++; !there[string(m[1])] {
				t.Errorf("%s names holdfast %s, which is no command", file, m[1])
			}
		}
	}
	if count < 20 {
		t.Errorf("the documents name %d commands: this test looks at the wrong place", count)
	}
}
