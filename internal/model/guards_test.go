package model

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/takes"
)

var update = flag.Bool("model.update", false, "write stories as they are now")

// TestGuards takes each guard away, and expects that two nodes hold the key (I1), or a token out of
// order (I2). A shortest story has so many steps. It is told by -v.
func TestGuards(t *testing.T) {
	for _, c := range []struct {
		off   Guard
		in    bounds
		steps int
	}{
		{ImportRows, bounds{}, 3},
		{OwnedRefusesLocks, bounds{}, 3},
		{DemoteReplaces, bounds{}, 4},
		{UnservedKeeps, bounds{faults: 1, delays: 1}, 4},
		{DeadBeforeEvictRow, bounds{}, 2},
		{DeadBeforeEvictOwner, bounds{}, 4},
		{DeadBeforeEvictHold, bounds{}, 4},
		{ExactUnlock, bounds{faults: 1, delays: 1}, 5},
		{AdoptCompares, bounds{faults: 1, delays: 1}, 13},
		{Identity, bounds{faults: 1, failovers: 1, lossy: true}, 4},
		{GraceTakesNothing, bounds{faults: 1, failovers: 1, lossy: true}, 3},
		{NobodyDiesInGrace, bounds{faults: 1, sessions: 1}, 3},
		{Clock, bounds{faults: 1, failovers: 1, lossy: true}, 7},
		{Margin, bounds{faults: 2, cuts: 1, drift: 1}, 6},
		{FromSend, bounds{faults: 1, delays: 1}, 9},
		{ClockAtGrant, bounds{faults: 1, cuts: 1}, 11},
		{SlotDeadline, bounds{faults: 1, failovers: 1, lossy: true}, 8},
		{Announced, bounds{faults: 1, cuts: 1}, 10},
		{LocalDeath, bounds{faults: 2, cuts: 1, sessions: 1}, 12},
		{LookInTime, bounds{faults: 1, cuts: 1}, 10},
		{StopBeforeDemote, bounds{faults: 1, delays: 1}, 5},
		{FrozenTold, bounds{faults: 1, delays: 1}, 9},
		{UnservedWaits, bounds{faults: 1, delays: 1}, 5},
		{UnservedForswears, bounds{faults: 1, delays: 1}, 5},
		{PendingIsHad, bounds{}, 8},
		{ImportedStay, bounds{faults: 1, cuts: 1}, 5},
		{StreamGenerations, bounds{faults: 1, cuts: 1}, 7},
		{SteppedRemote, bounds{faults: 1, steps: 1}, 6},
		{SteppedCallers, bounds{faults: 1, steps: 1}, 5},
		{FreedRead, bounds{}, 4},
		{FreedGranted, bounds{}, 6},
		{FreedVouched, bounds{faults: 1, failovers: 1, lossy: true}, 11},
		{FreedAsked, bounds{}, 3},
		{FrozenVouched, bounds{faults: 1, failovers: 1, lossy: true}, 12},
	} {
		t.Run(c.off.String(), func(t *testing.T) {
			t.Parallel()
			if c.steps > 8 {
				takes.Seconds(t)
			}
			m := c.in.model()
			m.Without, m.Check = c.off, Harm
			r := m.Explore()
			t.Logf("%s, after %d states, %v:", r.Broken, r.States, r.Took)
			tell(t, r)
			keep(t, c.off, r)
			if r.Broken == "" || len(r.Story) != c.steps || strings.HasPrefix(r.Story[len(r.Story)-1], "(") {
				t.Errorf("%q in %d steps, expected a violation in %d", r.Broken, len(r.Story), c.steps)
			}
		})
	}
}

// TestSharedGuards is TestGuards for guards that let no writer in beside a reader (I1).
func TestSharedGuards(t *testing.T) {
	for _, c := range []struct {
		off   Guard
		steps int
	}{
		{LockLooksExclusive, 2},
		{LockLooksShared, 2},
		{GrantLooksExclusive, 3},
		{GrantLooksShared, 3},
		{ImportAll, 5},
		{DemoteAll, 7},
		{Downgrades, 8},
	} {
		t.Run(c.off.String(), func(t *testing.T) {
			t.Parallel()
			m := bounds{}.model()
			m.Without, m.Check, m.Shared, m.Downgrades = c.off, Harm, true, c.off == Downgrades
			r := m.Explore()
			t.Logf("%s, after %d states, %v:", r.Broken, r.States, r.Took)
			tell(t, r)
			if r.Broken == "" || len(r.Story) != c.steps || strings.HasPrefix(r.Story[len(r.Story)-1], "(") {
				t.Errorf("%q in %d steps, expected a violation in %d", r.Broken, len(r.Story), c.steps)
			}
		})
	}
}

// keep compares a story with that of testdata/stories, which leasetest replays. -model.update
// writes it.
func keep(t *testing.T, off Guard, r Result) {
	t.Helper()
	file := filepath.Join("testdata", "stories", off.String()+".txt")
	text := fmt.Sprintf("# Without %v: %s\n%s\n", off, r.Broken, strings.Join(r.Story, "\n"))
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if was, err := os.ReadFile(file); err != nil || string(was) != text {
		t.Errorf("the story is another one than in %s, see -model.update: %v\n%s", file, err, text)
	}
}

// TestInvariants_CanFail takes a guard away, and expects a violation of each invariant that no user
// sees by itself, told by its shortest story. TestGuards expects a violation of I1 or I2.
func TestInvariants_CanFail(t *testing.T) {
	for _, c := range []struct {
		of    Invariant
		off   Guard
		in    bounds
		steps int
	}{
		{I3, NobodyDiesInGrace, bounds{faults: 1, sessions: 1}, 3},
		{I5, DemoteReplaces, bounds{}, 3},
		{I6, Clock, bounds{faults: 1, failovers: 1, lossy: true}, 6},
		{I7, GraceTakesNothing, bounds{faults: 1, failovers: 1, lossy: true}, 2},
	} {
		t.Run(c.of.String(), func(t *testing.T) {
			t.Parallel()
			m := c.in.model()
			m.Without, m.Check = c.off, c.of
			r := m.Explore()
			t.Logf("without %v: %s, after %d states, %v:", c.off, r.Broken, r.States, r.Took)
			tell(t, r)
			if !strings.HasPrefix(r.Broken, c.of.String()) || len(r.Story) != c.steps {
				t.Errorf("%q in %d steps, expected a violation of %v in %d", r.Broken, len(r.Story), c.of, c.steps)
			}
		})
	}
}

// TestProgress takes away guards that free a stuck key, and expects states where nothing can be
// granted (I8).
func TestProgress(t *testing.T) {
	for _, c := range []struct {
		off Guard
		in  bounds
	}{
		{Doubt, bounds{}},
		{Unserved, bounds{faults: 1, delays: 1}},
		{EvictDead, bounds{faults: 1, crashes: 1}},
	} {
		t.Run(c.off.String(), func(t *testing.T) {
			t.Parallel()
			if c.off == Unserved {
				takes.Seconds(t)
			}
			m := c.in.model()
			m.Without, m.Requests, m.Live = c.off, 1, true
			r := m.Explore()
			t.Logf("%d of %d states are stuck, %v:", r.Stuck, r.States, r.Took)
			tell(t, r)
			if r.Broken != "" || r.Stuck == 0 {
				t.Errorf("%q, and no state is stuck", r.Broken)
			}
		})
	}
}
