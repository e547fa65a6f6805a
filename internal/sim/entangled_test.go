package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/coord"
	"github.com/holdfast-go/holdfast/internal/circle"
)

// TestCircles: without faults tasks get into circles, which are found; if no process looks for them
// they last, and the judge tells (I8).
func TestCircles(t *testing.T) {
	for _, blind := range []bool{false, true} {
		found, missed := 0, 0
		for n := uint64(0); n < 5 || n < 40 && found+missed == 0; n++ {
			r := simulate(t, Config{
				Seed: *seed + n, TTL: 10 * time.Second, Nodes: 3, Clients: 4, Keys: 4, blind: blind,
				script: func(w *world) { time.Sleep(w.t(60 * time.Second)) },
			})
			found += r.Found
			for _, line := range r.Bad {
				switch {
				case !blind, !strings.Contains(line, "I8: ") && !strings.HasPrefix(line, "          "): // a circle also keeps the others from its keys
					t.Errorf("seed %d: %s", *seed+n, line)
				case strings.Contains(line, "a circle was not found"):
					missed++
				}
			}
		}
		if blind && (missed == 0 || found > 0) || !blind && found == 0 {
			t.Errorf("blind: %v: %d circles were found, and %d missed", blind, found, missed)
		}
		t.Logf("blind: %v: %d circles were found, and %d missed", blind, found, missed)
	}
}

// TestCircles_BehindAWriter: the judge notices readers that were told of each other though there
// was no writer.
func TestCircles_BehindAWriter(t *testing.T) {
	begin := time.Now()
	at := func(second int) time.Time { return begin.Add(time.Duration(second) * time.Second) }
	now := time.Now()
	here := func() *start { return &start{client: &client{}} }
	away := func() *start { return &start{client: &client{weather: weather{away: true}}} }
	for name, x := range map[string]struct {
		writer *stay // of the key that the first task waits for since second 3, and that the other one reads since second 1
		same   bool  // the tasks are of one process
		bad    bool
		named  *naming
	}{
		"no writer":                           {nil, true, true, nil},
		"one that waits":                      {&stay{from: at(2)}, false, false, nil},
		"one that has waited meanwhile":       {&stay{from: at(4), until: at(5)}, false, false, nil},
		"one that waited before":              {&stay{from: at(1), until: at(2)}, false, true, nil},
		"the same, in one process":            {&stay{from: at(1), until: at(2)}, true, false, nil},
		"one that tried before":               {&stay{from: at(2), until: at(2), tries: true}, true, false, nil},
		"one that tried":                      {&stay{from: at(4), until: at(4), tries: true}, false, true, nil},
		"one that the arbiter may still have": {&stay{from: at(1), until: at(2), untold: true}, false, false, nil},
		"one that it had, until a while ago":  {&stay{from: at(-3), until: at(-2), untold: true}, false, true, nil},
		"one that left before there were any": {&stay{from: begin, until: begin}, true, true, nil},
		"one that the arbiter named, of a process that is there, a moment ago": {named: &naming{by: here(), since: now, at: at(4)}},
		"the same, named for long":              {named: &naming{by: here(), since: at(-9), at: at(4)}, bad: true},
		"the same, which does not reach it":     {named: &naming{by: away(), since: at(-9), at: at(4)}},
		"the same, named before there were any": {named: &naming{by: away(), since: at(-9), at: at(2)}, bad: true},
		"the same, named to another session":    {named: &naming{by: away(), since: at(-9), at: at(4), reader: "another"}, bad: true},
		"one of a process that has gone":        {named: &naming{by: here(), since: at(-9), at: at(4), gone: at(1)}},
		"the same, long ago":                    {named: &naming{by: here(), since: at(-30), at: at(4), gone: at(-20)}, bad: true},
	} {
		h := newJudge(4 * time.Second)
		h.state = func(string) []string { return nil }
		one, two := h.begins(nil), h.begins(nil)
		one.waits, one.holds = []*stay{{Claim: circle.Claim{Key: "b", Read: true}, from: at(3)}}, []*stay{{Claim: circle.Claim{Key: "a"}, from: at(1)}}
		two.waits, two.holds = []*stay{{Claim: circle.Claim{Key: "a"}, from: at(3)}}, []*stay{{Claim: circle.Claim{Key: "b", Read: true}, from: at(1)}}
		if x.writer != nil {
			h.tasks.writers = map[string][]*stay{"b": {x.writer}}
		}
		if x.named != nil {
			h.tasks.named = map[string][]*naming{"b": {x.named}}
		}
		other := coord.Process{Session: "other"}
		if x.same {
			other = coord.Process{}
		}
		h.toldOf(one, &coord.WaitError{Reason: &coord.DeadlockError{Key: "b", Cycle: []coord.DeadlockWait{
			{Label: one.label, Key: "b", Mode: "read", Has: "a"}, {Process: other, Label: two.label, Key: "a", Has: "b", HasMode: "read"},
		}}})
		if (len(h.bad) > 0) != x.bad {
			t.Errorf("%s: %q", name, h.bad)
		}
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
		h := newJudge(4 * time.Second)
		one, two := h.begins(nil), h.begins(nil)
		one.waits, one.holds = []*stay{named(at(3, 0), "b")}, []*stay{named(at(1, 0), "a")}
		two.waits, two.holds = []*stay{x.wait}, []*stay{x.hold}
		h.toldOf(one, &coord.WaitError{Reason: &coord.DeadlockError{Key: "b", Cycle: []coord.DeadlockWait{
			{Label: one.label, Key: "b", Has: "a"}, {Label: two.label, Key: "a", Has: "b"},
		}}})
		if (len(h.bad) > 0) != x.bad {
			t.Errorf("%s: %q", name, h.bad)
		}
	}
}
