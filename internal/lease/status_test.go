package lease

import (
	"fmt"
	"strings"
	"testing"
)

// names returns the String of each value that a table of transitions has, and of one that it has
// not.
func names[S interface {
	~uint8
	fmt.Stringer
}](t *testing.T, table [][]S) {
	t.Helper()
	seen := make(map[string]bool)
	for i := range table {
		text := S(i).String()
		if text == "" || strings.Contains(text, "(") || seen[text] {
			t.Errorf("%T %d is called %q", S(i), i, text)
		}
		seen[text] = true
	}
	if text := S(len(table)).String(); !strings.Contains(text, "(") {
		t.Errorf("%T %d is called %q, and there is no such state", S(0), len(table), text)
	}
}

func TestStates_EachHasAName(t *testing.T) {
	names(t, nextPhases[:])
	names(t, nextNamings[:])
	names(t, nextEndings[:])
	names(t, nextLookings[:])
	names(t, nextSources[:])
}

func TestStates_LegalTransitions(t *testing.T) {
	for _, c := range []struct {
		from, to Phase
		legal    bool
	}{
		{Unowned, Acquiring, true},
		{Unowned, Owned, false}, // not without Acquire
		{Unowned, Demoting, false},
		{Owned, Acquiring, false},
		{Demoting, Owned, false}, // a frozen partition is never served again at its epoch (rule 5)
		{Freeing, Owned, false},
		{Phase(200), Unowned, false},
	} {
		if got := legal(nextPhases[:], c.from, c.to); got != c.legal {
			t.Errorf("%v to %v: %t", c.from, c.to, got)
		}
	}
	if legal(nextEndings[:], Closed, Open) {
		t.Error("a closed partition opens again")
	}
	if legal(nextSources[:], SourceOwn, SourceArbiter) {
		t.Error("a hold of this node's own gets a row without being frozen")
	}
}
