package leasetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
)

// Callers whose number of permits differs from that of the holders are sent away with both numbers.
// The owner does so in its own process and on other nodes.
func TestPermits_OfAnotherNumber(t *testing.T) {
	three, four, five := fallback.PermitsName("m", 1, 3, "b"), fallback.PermitsName("m", 1, 4, "a"), fallback.PermitsName("m", 1, 5, "c")
	w := after(t, "a b c", "a acquire\n owner a\n ping\n b lock "+three+"\n deliver")
	a := w.node("a")
	refused := func(lines string) {
		t.Helper()
		var all []string
		for _, line := range strings.Split(lines, "\n") {
			log, err := w.Do(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, log...)
		}
		if !slices.ContainsFunc(all, func(l string) bool { return strings.Contains(l, errSize.Error()) }) {
			t.Errorf("%q: %q", lines, all)
		}
	}
	refused("a lock " + four)
	refused("c lock " + five + "\n deliver\n deliver")
	if names := a.P.NamesOf("m", 9); !slices.Equal(names, []string{three}) || !a.P.Knows(three) || a.P.Knows(five) || a.P.NamesOf("k", 9) != nil {
		t.Errorf("the owner knows %q", names)
	}
	if a.P.Len() == 0 {
		t.Error("the owner has no keys")
	}
}
