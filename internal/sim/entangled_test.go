package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/circle"
)

// TestCircles: without faults tasks get into circles, which are found, and which are missed if no process looks for them.
func TestCircles(t *testing.T) {
	found, missed := 0, false
	for n := uint64(0); (found == 0 || !missed) && n < 20; n++ {
		for _, blind := range []bool{false, true} {
			if !blind && found > 0 || blind && missed {
				continue
			}
			r := simulate(t, Config{
				Seed: *seed + n, TTL: 10 * time.Second, Nodes: 3, Clients: 4, Keys: 4, blind: blind,
				script: func(w *world) { time.Sleep(w.t(60 * time.Second)) },
			})
			told := len(r.Bad) > 0 && strings.Contains(r.Bad[0], "a circle was not found")
			if len(r.Bad) > 0 && (!blind || !told) {
				t.Errorf("seed %d: %q", *seed+n, r.Bad)
			}
			found, missed = found+r.Found, missed || told
			t.Logf("blind: %v, %d circles of %d grants", blind, r.Found, r.Grants)
		}
	}
	if found == 0 || !missed {
		t.Errorf("%d circles were found; noticed where no process looked for them: %v", found, missed)
	}
}

// TestCircles_ThatAreNone: the judge notices a circle that was told and was none.
func TestCircles_ThatAreNone(t *testing.T) {
	begin := time.Now()
	at := func(from, until int) *stay {
		s := &stay{from: begin.Add(time.Duration(from) * time.Second)}
		if until > 0 {
			s.until = begin.Add(time.Duration(until) * time.Second)
		}
		return s
	}
	named := func(s *stay, key string) *stay {
		s.Claim = circle.Claim{Key: key}
		return s
	}
	for name, x := range map[string]struct {
		wait, hold *stay // of the other task
		bad        bool
	}{
		"one that is":                    {named(at(2, 0), "a"), named(at(1, 0), "b"), false},
		"the other one gave up since":    {named(at(2, 5), "a"), named(at(1, 6), "b"), false},
		"it gave up before":              {named(at(1, 2), "a"), named(at(1, 6), "b"), true},
		"it had lost its lock before":    {named(at(1, 0), "a"), named(at(1, 2), "b"), true},
		"it waits for another key":       {named(at(2, 0), "c"), named(at(1, 0), "b"), true},
		"it has another key":             {named(at(2, 0), "a"), named(at(1, 0), "c"), true},
		"it waited for that key earlier": {named(at(1, 2), "a"), named(at(1, 0), "b"), true},
	} {
		h := newJudge(time.Second)
		one, two := h.begins(nil), h.begins(nil)
		one.wait, one.holds = named(at(3, 0), "b"), []*stay{named(at(1, 0), "a")}
		two.wait, two.holds = x.wait, []*stay{x.hold}
		h.toldOf(one, &coord.WaitError{Reason: &coord.DeadlockError{Key: "b", Cycle: []coord.DeadlockWait{
			{Label: one.label, Key: "b", Has: "a"}, {Label: two.label, Key: "a", Has: "b"},
		}}})
		if (len(h.bad) > 0) != x.bad {
			t.Errorf("%s: %q", name, h.bad)
		}
	}
}
