package sim

import (
	"strings"
	"testing"
	"time"
)

// A reader may be let in before the caller knows that its lock is one for reading, and not if it does not become one.
func TestJudge_ReadersOfADowngrade(t *testing.T) {
	for name, x := range map[string]struct {
		reader uint64 // its token
		made   uint64 // that of the lock for reading; 0: there is none
		begun  bool   // to make it one, when the reader comes
		bad    bool
	}{
		"after it is one for reading": {6, 5, true, false},
		"before it is one":            {5, 6, true, true},
		"it is not made one":          {6, 0, true, true},
		"before it was begun":         {6, 5, false, true},
		"not begun, and not made one": {6, 0, false, true},
	} {
		h := newJudge(4 * time.Second)
		h.state = func(string) []string { return nil }
		by := &start{n: new(node), h: &host{clock: new(clock)}}
		at := func(token uint64) *grant {
			return &grant{by: by, ctx: t.Context(), token: token, called: time.Now(), at: time.Now()}
		}
		g := at(4)
		h.of("k").holder, h.of("k").token = g, g.token
		if x.begun {
			h.downgrading(g)
		}
		h.shares("k", &use{grant: at(x.reader)})
		if x.made > 0 {
			h.downgraded("k", g, &use{grant: at(x.made)})
		} else {
			h.notDowngraded("k", g)
		}
		if (len(h.bad) > 0) != x.bad || x.bad && !strings.Contains(h.bad[0], "I1: ") {
			t.Errorf("%s: %q", name, h.bad)
		}
	}
}
