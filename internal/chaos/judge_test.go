//go:build linux

package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/lan"
)

// lockOf returns a client's events of a lock of key k: the times are moments, 0 for an event that
// did not come.
func lockOf(node string, client int, fence uint64, asked, granted, valid, ended int64) []event {
	e := func(at int64, o op) event {
		return event{At: at, Node: node, Life: 1, Client: client, Op: o, Key: "k", Fence: fence}
	}
	all := []event{e(asked, opLock), e(granted, opGranted)}
	if valid > 0 {
		held := e(valid, opHeld)
		held.Valid = valid
		all = append(all, held)
	}
	if ended > 0 {
		all = append(all, e(ended, opUnlock), e(ended, opUnlocked))
	}
	return all
}

// as turns a client's events into those of a reader, or of a holder of permits.
func as(m mode, n int, events []event) []event {
	for i := range events {
		events[i].Mode, events[i].N = m, n
		if m == counted {
			events[i].Fence = 0
		}
	}
	return events
}

// downgraded returns a client's events of a lock of key k that it downgrades for reading at a
// moment.
func downgraded(node string, fence, reads uint64, granted, at, valid, ended int64) []event {
	all := lockOf(node, 1, fence, granted-1, granted, at-1, 0)
	all = append(all, event{At: at, Node: node, Life: 1, Client: 1, Op: opDowngrade, Key: "k", Fence: fence})
	reading := as(reading, 0, lockOf(node, 1, reads, at, at+1, valid, ended))[1:]
	reading[0].From = fence
	return append(all, reading...)
}

func TestWhatTheJudgeFinds(t *testing.T) {
	refused := func(node string, client int, fence uint64, at int64) []event {
		return []event{{At: at, Node: node, Life: 1, Client: client, Op: opRefused, Key: "k", Fence: fence}}
	}
	for _, test := range []struct {
		name   string
		events [][]event
		want   string // how each violation begins
	}{
		{"one after the other", [][]event{lockOf("n1", 1, 5, 1, 10, 20, 21), lockOf("n2", 1, 6, 2, 22, 30, 31)}, ""},
		{"two at once", [][]event{lockOf("n1", 1, 5, 1, 10, 25, 26), lockOf("n2", 1, 6, 2, 22, 30, 31)}, "I1"},
		{"a third one is long in force", [][]event{lockOf("n1", 1, 5, 1, 10, 90, 91), lockOf("n2", 1, 6, 2, 22, 0, 31),
			lockOf("n3", 1, 7, 2, 50, 60, 61)}, "I1"},
		{"not known to be in force", [][]event{lockOf("n1", 1, 5, 1, 10, 20, 0), lockOf("n2", 1, 6, 2, 22, 30, 31)}, ""},
		{"killed, and was in force", [][]event{lockOf("n1", 1, 5, 1, 10, 20, 0), lockOf("n2", 1, 6, 2, 19, 30, 31)}, "I1"},
		{"a token twice", [][]event{lockOf("n1", 1, 5, 1, 10, 20, 21), lockOf("n2", 1, 5, 2, 22, 30, 31)}, "I2"},
		{"a lower token, asked for later", [][]event{lockOf("n1", 1, 5, 1, 10, 0, 21), lockOf("n2", 1, 4, 12, 22, 0, 31)}, "I2"},
		{"a lower token, asked for before", [][]event{lockOf("n1", 1, 5, 1, 10, 0, 21), lockOf("n2", 1, 4, 2, 22, 0, 31)}, ""},
		{"a lower token, in force later", [][]event{lockOf("n1", 1, 5, 1, 10, 20, 21), lockOf("n2", 1, 4, 2, 22, 30, 31)}, "I2"},
		{"refused, and in force later", [][]event{lockOf("n1", 1, 5, 1, 10, 20, 0), refused("n1", 1, 5, 15)}, "k: the resource refused"},
		{"two readers", [][]event{as(reading, 0, lockOf("n1", 1, 5, 1, 10, 25, 26)), as(reading, 0, lockOf("n2", 1, 5, 2, 22, 30, 31))}, ""},
		{"a reader beside a writer", [][]event{lockOf("n1", 1, 5, 1, 10, 25, 26), as(reading, 0, lockOf("n2", 1, 6, 2, 22, 30, 31))}, "I1"},
		{"a writer beside a reader", [][]event{as(reading, 0, lockOf("n1", 1, 5, 1, 10, 25, 26)), lockOf("n2", 1, 6, 2, 22, 30, 31)}, "I1"},
		{"a writer beside a reader that came before a shorter one", [][]event{as(reading, 0, lockOf("n1", 1, 5, 1, 10, 90, 91)),
			as(reading, 0, lockOf("n2", 1, 5, 1, 11, 20, 21)), lockOf("n3", 1, 6, 2, 22, 30, 31)}, "I1"},
		{"a reader's token after a writer's", [][]event{lockOf("n1", 1, 5, 1, 10, 0, 21), as(reading, 0, lockOf("n2", 1, 4, 12, 22, 0, 31))}, "I2"},
		{"a writer's token after a reader's", [][]event{as(reading, 0, lockOf("n1", 1, 5, 1, 10, 20, 21)), lockOf("n2", 1, 4, 2, 22, 30, 31)}, "I2"},
		{"a writer's token is a reader's", [][]event{as(reading, 0, lockOf("n1", 1, 5, 1, 10, 0, 21)), lockOf("n2", 1, 5, 2, 22, 0, 31)}, "I2"},
		{"readers' tokens fall", [][]event{as(reading, 0, lockOf("n1", 1, 5, 1, 10, 20, 21)), as(reading, 0, lockOf("n2", 1, 4, 12, 22, 30, 31))}, ""},
		{"downgraded", [][]event{downgraded("n1", 5, 6, 10, 20, 30, 31), lockOf("n2", 1, 7, 2, 32, 40, 41)}, ""},
		{"a writer beside what was downgraded", [][]event{downgraded("n1", 5, 6, 10, 20, 30, 31), lockOf("n2", 1, 7, 2, 25, 40, 41)}, "I1"},
		{"a writer while it was downgraded", [][]event{downgraded("n1", 5, 7, 10, 20, 40, 41), lockOf("n2", 1, 6, 2, 20, 0, 21)}, "I1"},
		{"as many permits as there are", [][]event{as(counted, 1, lockOf("n1", 1, 0, 1, 10, 25, 26)), as(counted, 2, lockOf("n2", 1, 0, 2, 22, 30, 31)),
			as(counted, 1, lockOf("n3", 1, 0, 2, 25, 30, 31))}, ""},
		{"one permit more than there are", [][]event{as(counted, 1, lockOf("n1", 1, 0, 1, 10, 25, 26)), as(counted, 2, lockOf("n2", 1, 0, 2, 22, 30, 31)),
			as(counted, 1, lockOf("n3", 1, 0, 2, 24, 30, 31))}, "I1"},
		{"refused, and not in force later", [][]event{lockOf("n1", 1, 5, 1, 10, 12, 0), refused("n1", 1, 5, 15)}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := read(slices.Concat(test.events...))
			bad := h.violations()
			if test.want == "" && len(bad) > 0 || test.want != "" && (len(bad) == 0 || !strings.HasPrefix(bad[0], test.want)) {
				t.Errorf("%q is wanted: %q", test.want, bad)
			}
		})
	}
}

func TestWhatIsUnderWayAtAKill(t *testing.T) {
	h := read(slices.Concat(lockOf("n1", 1, 5, 1, 10, 20, 0), []event{{At: 3, Node: "n1", Life: 1, Client: 2, Op: opLock, Key: "k"}}))
	if h.orphaned != 1 || h.unknown != 1 || len(h.holds) != 1 {
		t.Errorf("%+v", h)
	}
}

func TestStalls(t *testing.T) {
	h := read(slices.Concat(lockOf("n1", 1, 5, 1, 10, 0, 11), lockOf("n1", 1, 6, 11, 20, 0, 22), lockOf("n1", 1, 7, 23, 70, 0, 71)))
	if key, d := longestStall(h.byKey(), 0, 100); key != "k" || d != 50*time.Nanosecond {
		t.Error(key, d)
	}
	if _, d := longestStall(h.byKey(), 60, 75); d != 10*time.Nanosecond {
		t.Error(d)
	}
}

func TestTheRing(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e"}
	gone := make(map[string]map[string]bool)
	for _, w := range lan.Ring(names) {
		if gone[w.To] == nil {
			gone[w.To] = make(map[string]bool)
		}
		gone[w.To][w.From] = true
	}
	seen := make(map[string]bool)
	for _, n := range names {
		if len(gone[n]) != 2 {
			t.Errorf("%s does not hear %v", n, gone[n])
		}
		text := ""
		for _, m := range names {
			if !gone[n][m] {
				text += m
			}
			if gone[n][m] != gone[m][n] {
				t.Errorf("%s and %s: one way", n, m)
			}
		}
		if seen[text] {
			t.Errorf("two see %s", text)
		}
		seen[text] = true
	}
}

// Two holders are told apart from other violations where the settings allow for them, and only
// there.
func TestExpectedWithDefaultReplication(t *testing.T) {
	for _, c := range []struct {
		cfg                  config
		violations, expected int
	}{
		{config{Defaults: true}, 1, 3},
		{config{Defaults: true, Replicas: 1}, 4, 0},
		{config{}, 4, 0},
	} {
		rep := &report{Violations: []string{"I1: k: two", "I2: k: the same", "k: the resource refused x", "k: in calm times n1 failed"}}
		rep.excuse(c.cfg)
		if len(rep.Violations) != c.violations || len(rep.Expected) != c.expected {
			t.Errorf("%+v: %q and %q", c.cfg, rep.Violations, rep.Expected)
		}
		var told strings.Builder
		rep.write(&told)
		if strings.Contains(told.String(), "expected with these settings") != (c.expected > 0) {
			t.Errorf("%+v: %s", c.cfg, told.String())
		}
	}
}
