package spec

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/fallback"
)

func row(session string, request uint64, epoch, seq uint32) fallback.Row {
	return fallback.Row{Identity: fallback.Identity{Session: session, Request: request}, Token: fallback.MakeToken(epoch, seq)}
}

func hold(r fallback.Row) Hold { return Hold{Key: "k", Name: "k", Row: r} }

// life is a run that the specification allows: a node locks at the arbiter, the other one takes the
// partition, keeps and grants holds, and gives it back; the first one's ownership is demoted
// unserved.
var life = []Event{
	{Kind: Locked, Hold: hold(row("a", 1, 1, 1))},
	{Kind: Accepted, Hold: hold(row("a", 1, 1, 1))},
	{Kind: Acquired, Session: "b", Epoch: 2, Rows: []fallback.Row{row("a", 1, 1, 1)}},
	{Kind: Served, Session: "b", Epoch: 2},
	{Kind: Dropped, Hold: hold(row("a", 1, 1, 1))},
	{Kind: Unlocked, Hold: hold(row("a", 1, 0, 0))},
	{Kind: Granted, Session: "b", Hold: hold(row("a", 2, 2, 1))},
	{Kind: Accepted, Hold: hold(row("a", 2, 2, 1))},
	{Kind: Adopted, Hold: hold(row("a", 2, 2, 1))},
	{Kind: Frozen, Session: "b", Epoch: 2},
	{Kind: Kept, Session: "b", Epoch: 2, Hold: Hold{Key: "l", Name: "l", Row: row("b", 1, 2, 2)}},
	{Kind: Demoted, Session: "b", Epoch: 2, Rows: []fallback.Row{row("a", 2, 2, 1), row("b", 1, 2, 2)}},
	{Kind: Acquired, Session: "a", Epoch: 3},
	{Kind: Forsworn, Session: "a", Epoch: 3},
	{Kind: Dropped, Hold: hold(row("a", 2, 2, 1))},
	{Kind: Locked, Hold: hold(row("b", 2, 3, 1))},
	{Kind: Accepted, Hold: hold(row("b", 2, 3, 1))},
	{Kind: Over, Session: "b"},
	{Kind: Dead, Session: "b"},
}

// after returns the state after so many events of life.
func after(t *testing.T, n int) *State {
	t.Helper()
	s := New()
	for i := range life[:n] {
		if err := s.Step(&life[i]); err != nil {
			t.Fatalf("event %d: %v: %v", i, &life[i], err)
		}
	}
	return s
}

func TestStep_AllowsALife(t *testing.T) {
	s := after(t, len(life))
	if len(s.Serving)+len(s.Holds) > 0 || s.Top != 3 {
		t.Errorf("in the end: %+v", s)
	}
}

// TestStep_Refuses puts an event that no rule allows into the run.
func TestStep_Refuses(t *testing.T) {
	for _, c := range []struct {
		after int
		event Event
		why   string
	}{
		{4, Event{Kind: Acquired, Session: "a", Epoch: 2}, "I6: epoch 2 was given out after 2"},
		{4, Event{Kind: Acquired, Session: "a", Epoch: 3}, "I4: the partition is given away while b"},
		{3, Event{Kind: Served, Session: "a", Epoch: 2}, "rule 6: the epoch was not given to it"},
		{4, Event{Kind: Served, Session: "b", Epoch: 2}, "rule 6: the epoch was not given to it, was served before"},
		{14, Event{Kind: Served, Session: "a", Epoch: 3}, "rule 6: the epoch was not given to it, was served before, or forsworn"},
		{19, Event{Kind: Served, Session: "b", Epoch: 3}, "rule 1: the session is over"},
		{3, Event{Kind: Frozen, Session: "b", Epoch: 2}, "rule 5: it freezes what it has not served"},
		{9, Event{Kind: Demoted, Session: "b", Epoch: 2, Rows: []fallback.Row{row("a", 2, 2, 1)}}, "rule 5: it demotes before it freezes"},
		{11, Event{Kind: Demoted, Session: "b", Epoch: 2, Rows: []fallback.Row{row("b", 1, 2, 2)}}, "rule 5: the rows lack"},
		{11, Event{Kind: Demoted, Session: "a", Epoch: 2}, "rule 5: it demotes what it has not served"},
		{9, Event{Kind: Forsworn, Session: "b", Epoch: 2}, "rule 6: it demotes what it serves"},
		{13, Event{Kind: Reclaimed, Session: "a", Epoch: 3}, "I6: it reclaims what it has not served"},
		{9, Event{Kind: Kept, Session: "b", Epoch: 2, Hold: hold(row("b", 1, 2, 2))}, "rule 5: it keeps a hold"},
		{10, Event{Kind: Kept, Session: "b", Epoch: 2, Hold: hold(row("b", 1, 2, 2))}, "I1: there is"},
		{8, Event{Kind: Granted, Session: "b", Hold: hold(row("c", 1, 2, 1))}, "I2: it gave out token 2.1"},
		{10, Event{Kind: Granted, Session: "b", Hold: hold(row("c", 1, 2, 5))}, "I4: it does not serve the partition"},
		{4, Event{Kind: Locked, Hold: hold(row("c", 1, 2, 5))}, "I4: the arbiter grants the key while b"},
		{7, Event{Kind: Accepted, Hold: hold(row("a", 3, 2, 1))}, "rule 13: it was not granted"},
		{6, Event{Kind: Accepted, Hold: hold(row("a", 1, 1, 1))}, "rule 13: it was not granted, or was released before"},
		{5, Event{Kind: Accepted, Hold: hold(row("a", 1, 1, 1))}, "I2: a token was accepted that is 1.1"},
		{7, Event{Kind: Dropped, Hold: hold(row("a", 2, 2, 1))}, "rule 9: it was not had"},
		{8, Event{Kind: Unlocked, Hold: hold(row("a", 2, 0, 0))}, "rule 9: the hold is in force"},
		{7, Event{Kind: Adopted, Hold: hold(row("a", 2, 2, 1))}, "rule 7: a row is asked for that no hold had"},
		{8, Event{Kind: Dead, Session: "a"}, "I3: it has"},
		{8, Event{Kind: Dead, Session: "b"}, "I3: it serves the partition at 2"},
	} {
		s := after(t, c.after)
		if err := s.Step(&c.event); err == nil || !strings.Contains(err.Error(), c.why) {
			t.Errorf("after %d events, %v: %v, expected %q", c.after, &c.event, err, c.why)
		}
	}
}

func TestStep_Grants(t *testing.T) {
	for name, c := range map[string]struct {
		first, second bool // shared
		lapsed        Answer
		refused       string
	}{
		"two readers":                {true, true, Lasts, ""},
		"a writer beside a reader":   {true, false, Lasts, "I1"},
		"a reader beside a writer":   {false, true, Lasts, "I1"},
		"a hold has lapsed":          {false, false, Lapsed, ""},
		"the node of a hold is busy": {false, false, Unknown, ""},
		"a writer beside another":    {false, false, Lasts, "I1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := New()
			s.Lapsed = func(string, uint32, *Hold) Answer { return c.lapsed }
			var err error
			for i, shared := range []bool{c.first, c.second} {
				h := hold(row(string(rune('a'+i)), 1, 1, uint32(1+i)))
				h.Shared = shared
				for _, k := range []Kind{Locked, Accepted} {
					if err == nil {
						err = s.Step(&Event{Kind: k, Hold: h})
					}
				}
			}
			switch {
			case c.refused == "" && err != nil, c.refused != "" && (err == nil || !strings.HasPrefix(err.Error(), c.refused)):
				t.Errorf("%v, expected %q", err, c.refused)
			case c.refused == "" && (len(s.Holds) == 1) != (c.lapsed == Lapsed):
				t.Errorf("%d holds", len(s.Holds))
			}
		})
	}
}

// An owner's grants to its own callers are compared with all else, and not kept.
func TestStep_Takes(t *testing.T) {
	for name, c := range map[string]struct {
		after  int
		token  uint32
		key    string
		shared bool
		why    string
	}{
		"a free key":           {8, 2, "l", false, ""},
		"before it serves":     {3, 1, "l", false, "I4: it does not serve"},
		"after it has frozen":  {10, 2, "l", false, "I4: it does not serve"},
		"a token of before":    {8, 1, "l", false, "I2: it gave out token 2.1"},
		"beside another node":  {8, 2, "k", false, "I1: there is"},
		"to read, beside one":  {8, 2, "k", true, "I1: there is"},
		"when that has lapsed": {8, 2, "k", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := after(t, c.after)
			if name == "when that has lapsed" {
				s.Lapsed = func(_ string, _ uint32, h *Hold) Answer {
					if h == nil {
						return Lasts
					}
					return Lapsed
				}
			}
			h := Hold{Key: c.key, Name: c.key, Shared: c.shared, Row: row("b", 0, 2, c.token)}
			err := s.Step(&Event{Kind: Took, Session: "b", Hold: h})
			if (err == nil) != (c.why == "") || err != nil && !strings.HasPrefix(err.Error(), c.why) {
				t.Errorf("%v, expected %q", err, c.why)
			}
		})
	}
	s := after(t, 8)
	taken := Hold{Key: "l", Name: "l", Row: row("b", 0, 2, 5)}
	if err := s.Step(&Event{Kind: Took, Session: "b", Hold: taken}); err != nil {
		t.Error(err)
	}
	earlier := hold(row("a", 3, 2, 4))
	earlier.Key, earlier.Name = "l", "l"
	s.Offers[earlier.Identity] = earlier.Token
	if err := s.Step(&Event{Kind: Accepted, Hold: earlier}); err == nil || !strings.HasPrefix(err.Error(), "I2: a token was accepted") {
		t.Error(err)
	}
}

// Two refusals need more than one event that is not in life.
func TestStep_RefusesASecondServiceAndTheDead(t *testing.T) {
	s := after(t, 4)
	s.Given[3] = "a" // while the node of b did not answer
	if err := s.Step(&Event{Kind: Served, Session: "a", Epoch: 3}); err == nil || err.Error() != "I4: b serves the partition at 2" {
		t.Error(err)
	}
	s, late := after(t, len(life)), hold(row("b", 3, 3, 2))
	if err := s.Step(&Event{Kind: Locked, Hold: late}); err != nil {
		t.Error(err)
	}
	if err := s.Step(&Event{Kind: Accepted, Hold: late}); err == nil || err.Error() != "rule 1: the session is over" {
		t.Error(err)
	}
}

// A service that has lapsed by its node's clock is over, and its node grants nothing any more.
func TestStep_LapsedServiceIsOver(t *testing.T) {
	s := after(t, 9)
	s.Lapsed = func(string, uint32, *Hold) Answer { return Lapsed }
	for _, c := range []struct {
		event Event
		why   string
	}{
		{Event{Kind: Acquired, Session: "a", Epoch: 3}, ""},
		{Event{Kind: Granted, Session: "b", Hold: hold(row("c", 1, 2, 5))}, "I4"},
		{Event{Kind: Frozen, Session: "b", Epoch: 2}, ""},
	} {
		if err := s.Step(&c.event); (err == nil) != (c.why == "") || err != nil && !strings.HasPrefix(err.Error(), c.why) {
			t.Errorf("%v: %v, expected %q", &c.event, err, c.why)
		}
	}
}

// A hold granted for a downgrade of a lock that has been lost since is no caller's: a writer with a
// lower token may come after it.
func TestStep_DowngradedHoldOfALostLockIsNoCallers(t *testing.T) {
	for name, c := range map[string]struct {
		before  []Kind // of the exclusive hold
		refused string // a writer with a lower token
	}{
		"in force": {[]Kind{Locked, Accepted}, "I2"},
		"lost":     {[]Kind{Locked, Accepted, Dropped}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := New()
			old, writer, reader := hold(row("a", 1, 1, 1)), hold(row("a", 2, 1, 2)), hold(row("a", 3, 1, 3))
			reader.Name, reader.Shared, reader.Downgraded = "k d", true, true
			var events []Event
			for _, k := range c.before {
				events = append(events, Event{Kind: k, Hold: old})
			}
			events = append(events, Event{Kind: Locked, Hold: writer})
			for _, k := range []Kind{Locked, Accepted, Dropped, Unlocked} {
				events = append(events, Event{Kind: k, Hold: reader})
			}
			events = append(events, Event{Kind: Accepted, Hold: writer})
			for i := range events {
				err := s.Step(&events[i])
				if refused := i == len(events)-1 && c.refused != ""; refused != (err != nil) || refused && !strings.HasPrefix(err.Error(), c.refused) {
					t.Errorf("%v: %v, expected %q", &events[i], err, c.refused)
				}
			}
		})
	}
}
