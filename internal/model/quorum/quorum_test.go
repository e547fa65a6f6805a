package quorum

import (
	"flag"
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/internal/takes"
)

var deep = flag.Bool("model.deep", false, "wider bounds: minutes, and some GB")

func explain(t *testing.T, m *Register) Result {
	t.Helper()
	r := m.Explore()
	t.Logf("%q after %d states", r.Broken, r.States)
	for i, line := range r.Story {
		t.Logf("%3d. %s", i+1, line)
	}
	return r
}

func bounds() []*Register {
	return []*Register{
		{Tries: 1, Forgets: 1},
		{Tries: 1, Forgets: 1, Chain: true},
	}
}

func TestRegister(t *testing.T) {
	for _, m := range bounds() {
		t.Run(fmt.Sprintf("tries %d, forgets %d, older %t, chain %t, two %t", m.Tries, m.Forgets, m.Older, m.Chain, m.Two), func(t *testing.T) {
			if r := explain(t, m); r.Broken != "" {
				t.Error(r.Broken)
			}
		})
	}
}

// Each guard prevents something: without it there is a shortest story of the failure.
func TestRegister_EachGuard(t *testing.T) {
	for _, g := range Guards {
		t.Run(g.String(), func(t *testing.T) {
			m := Register{Tries: 1, Forgets: 1}
			switch g {
			case Established:
				t.Skip("three servers show nothing: it is about two that are admitted at the same time, which takes five")
			case Others, WrittenBack, NewEpoch:
				takes.Seconds(t)
			case SameStart:
				if !*deep {
					t.Skip("only with -model.deep: seconds")
				}
				m = Register{Tries: 1, Forgets: 2, Two: true}
			}
			m.Without = g
			if r := explain(t, &m); r.Broken == "" {
				t.Error("nothing goes wrong without it")
			}
		})
	}
}

// Two losses, two tries of each, and servers that go back to older data: minutes.
func TestDeepRegister(t *testing.T) {
	if !*deep {
		t.Skip("only with -model.deep")
	}
	for _, m := range []*Register{
		{Tries: 1, Forgets: 2},
		{Tries: 1, Forgets: 2, Two: true},
		{Tries: 1, Forgets: 1, Older: true},
		{Tries: 2, Forgets: 1},
	} {
		if r := explain(t, m); r.Broken != "" {
			t.Error(r.Broken)
		}
	}
}
